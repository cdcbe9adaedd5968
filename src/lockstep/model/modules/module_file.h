// A model in a file: a torch module that was saved as TorchScript, named by model.from.
//
//     net = torch.jit.script(Net()); torch.jit.save(net, "net.pt", {"lockstep.json": '{"input": [1, 28,
//     28]}'}) lockstep train model.from=net.pt data.kind=arrays data.path=digits/
//
// LibTorch's interpreter runs the module's forward, autograd differentiates it, and all else is as for
// modules of C++ programs (autograd_torch.h). The file may say of itself, in an extra file "lockstep.json":
//
//     input   shape of one sample of floats; absent: data.seq_len token numbers
//     labels  shape of one sample's labels; absent: one label, or with tokens one for each
//     targets true: labels are floats (regression)
//     blocks  names of children that are called one after the other, each a block of its own: what ZeRO and
//             pipelines cut between; absent: the module is one block
//
// A method `loss(outputs, labels)` is the loss (AutogradLossOptions says what it gives); without one it is
// the cross-entropy of the outputs' last dimension. Such a file holds code that runs with the program's
// rights.
#pragma once

#include <optional>
#include <string>

#include "lockstep/device/tensor.h"
#include "lockstep/model/block.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::model {

// By its ending: "net.pt".
bool is_module_file(const std::string& path);

// ConfigError 129 when the file cannot be a model.
Model model_of_file(const std::string& path, const recipe::Recipe& recipe, DType compute);

// A segment that knows what the 32-bit words are that it reads of the batch.
class BatchReader {
 public:
  virtual ~BatchReader() = default;
  virtual std::optional<DType> input_type() const { return std::nullopt; }  // i32 or f32
  virtual std::optional<DType> label_type() const { return std::nullopt; }
};
// Of a model: floats or integers. Of the built-in families: integers.
struct BatchTypes {
  DType inputs = DType::i32, labels = DType::i32;
};
BatchTypes batch_types(const Model& model);

// As load_torch_cuda_where_linked(), for a program that does not link LibTorch: before model_of_file().
void load_torch_cuda_for_file();

}  // namespace lockstep::model

extern "C" {
// Of liblockstep_torch.so.
void lockstep_module_file(const std::string& path, const lockstep::recipe::Recipe& recipe,
                          lockstep::device::DType compute, lockstep::model::Model& model);
void lockstep_load_torch_cuda();
}
