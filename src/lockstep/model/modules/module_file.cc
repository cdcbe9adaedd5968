#include "lockstep/model/modules/module_file.h"

#include "lockstep/device/libraries.h"

namespace lockstep::model {

namespace {

template <class Function>
Function find(const char* symbol) {
  const std::string path = device::path_beside("liblockstep_torch.so");
  return reinterpret_cast<Function>(device::find_in_library(device::load_library(path), path, symbol));
}

}  // namespace

bool is_module_file(const std::string& path) { return path.ends_with(".pt"); }

Model model_of_file(const std::string& path, const recipe::Recipe& recipe, DType compute) {
  static const auto build = find<decltype(&lockstep_module_file)>("lockstep_module_file");
  Model model;
  build(path, recipe, compute, model);
  return model;
}

BatchTypes batch_types(const Model& model) {
  BatchTypes types;
  for (const Block& block : model.blocks) {
    for (const auto& segment : block.segments()) {
      const auto* reader = dynamic_cast<const BatchReader*>(segment.get());
      if (reader == nullptr) continue;
      types.inputs = reader->input_type().value_or(types.inputs);
      types.labels = reader->label_type().value_or(types.labels);
    }
  }
  return types;
}

void load_torch_cuda_for_file() { find<decltype(&lockstep_load_torch_cuda)>("lockstep_load_torch_cuda")(); }

}  // namespace lockstep::model
