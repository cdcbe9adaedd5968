#include "lockstep/model/modules/module_file.h"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text.h"
#include "lockstep/model/modules/autograd_torch.h"
#include "lockstep/model/modules/module_torch.h"
#include "lockstep/model/modules/script_torch.h"

namespace lockstep::model {

namespace {

// What the file says of itself ("lockstep.json").
struct Description {
  std::optional<Shape> input = {}, labels = {};
  bool targets = false;
  std::vector<std::string> blocks = {};
};

class ModuleFile {
 public:
  explicit ModuleFile(const std::string& path) : path_(path) {
    const base::MappedFile file = base::MappedFile::open(path);
    identity_ = "module " + base::hex64(base::hash_bytes(file.bytes()));
    run_as_written();
    torch::jit::ExtraFilesMap extra{{"lockstep.json", ""}};
    try {
      script_ = torch::jit::load(path, at::kCPU, extra);
    } catch (const std::exception& error) {
      refuse("is no TorchScript module that LibTorch 2.11 opens (" + first_line(error.what()) +
             "): save it with torch.jit.save(torch.jit.script(module), FILE)");
    }
    said_ = read_description(extra["lockstep.json"]);
  }

  Model build(const recipe::Recipe& recipe, DType compute) const {
    const Shape input = said_.input.value_or(Shape{recipe.data.seq_len});
    Model model{.family = "torchscript", .compute = compute, .predicts_tokens = false};
    const Shape out =
        said_.blocks.empty() ? add_block(model, "module", script_, input) : add_children(model, input);
    add_loss(model, out, input);
    return model;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw base::ConfigError(129, "model.from = " + base::quoted(path_) + " " + why);
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  // The interpreter's optimizations come after some runs and may round differently: every run is the first.
  static void run_as_written() {
    torch::jit::getExecutorMode() = false;
    torch::jit::getProfilingMode() = false;
    torch::jit::setGraphExecutorOptimize(false);
  }

  Description read_description(const std::string& text) const;

  Shape add_children(Model& model, Shape shape) const {
    for (const std::string& name : said_.blocks) {
      if (!script_.hasattr(name) || !script_.attr(name).isModule())
        refuse("has no child " + base::quoted(name) + ", which its lockstep.json names as a block");
      shape = add_block(model, name, script_.attr(name).toModule(), shape);
    }
    return shape;
  }

  // Returns the shape of a sample of what the block gives.
  Shape add_block(Model& model, const std::string& name, const torch::jit::Module& script,
                  const Shape& in) const {
    const bool first = model.blocks.empty();
    AutogradOptions options{.name = name,
                            .module = module_of(script),
                            .forward = forward_of(script, path_),
                            .in = in,
                            .type = model.compute,
                            .reads_batch = first,
                            .tokens = first && !said_.input,
                            .bare_names = said_.blocks.empty(),
                            .identity = identity_};
    options.out = output_of(options, name);
    const Shape out = options.out;
    model.blocks.push_back(autograd_block(std::move(options)));
    return out;
  }

  // By one forward pass over two samples of zeros.
  Shape output_of(const AutogradOptions& options, const std::string& name) const {
    const c10::AutoGradMode without_graph(false);
    options.module->train(false);
    const at::Tensor zeros = at::zeros(batched(2, options.in), options.tokens ? at::kLong : at::kFloat);
    const at::Tensor out = options.forward(zeros);
    options.module->train(true);
    if (out.dim() < 1 || out.size(0) != 2) {
      refuse("gives a tensor whose first dimension is not the number of samples (block " + name +
             ", input of " + options.in.to_string() + " per sample)");
    }
    if (out.dim() > 5) refuse("gives more than four dimensions per sample");
    return shape_of(out.select(0, 0));
  }

  void add_loss(Model& model, const Shape& out, const Shape& input) const {
    if (out.rank() == 0) refuse("gives one number per sample; let it give a vector, [samples, 1]");
    Shape labels = said_.labels.value_or(said_.input ? Shape{} : input);
    if (labels.numel() == 1) labels = Shape{};
    AutogradLossOptions options{.in = out, .labels = labels, .type = model.compute, .targets = said_.targets};
    if (const auto own = script_.find_method("loss")) {
      options.loss = loss_of(*own, path_);
    } else if (said_.targets) {
      refuse("has targets that are floats, and no method `loss(outputs, labels)` to compare them with");
    } else {
      options.loss = [path = path_](const at::Tensor& outputs, const at::Tensor& of) {
        return cross_entropy(outputs, of, path);
      };
    }
    model.blocks.push_back(autograd_loss(std::move(options)));
  }

  std::string path_, identity_;
  torch::jit::Module script_;
  Description said_;
};

Shape shape_from(const std::vector<int64_t>& sizes) {
  switch (sizes.size()) {
    case 0:
      return {};
    case 1:
      return {sizes[0]};
    case 2:
      return {sizes[0], sizes[1]};
    case 3:
      return {sizes[0], sizes[1], sizes[2]};
    default:
      return {sizes[0], sizes[1], sizes[2], sizes[3]};
  }
}

Description ModuleFile::read_description(const std::string& text) const {
  Description said;
  if (text.empty()) return said;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    const auto shape = [&](const char* name) -> std::optional<Shape> {
      if (!json.contains(name)) return std::nullopt;
      const auto sizes = json.at(name).get<std::vector<int64_t>>();
      const bool good = sizes.size() <= 4 && std::all_of(sizes.begin(), sizes.end(),
                                                         [](int64_t n) { return n > 0 && n < 1 << 30; });
      if (!good)
        refuse(std::string("has a lockstep.json whose ") + name + " is no shape of up to four sizes");
      return shape_from(sizes);
    };
    said.input = shape("input");
    said.labels = shape("labels");
    said.targets = json.value("targets", false);
    said.blocks = json.value("blocks", std::vector<std::string>{});
  } catch (const nlohmann::json::exception& error) {
    refuse(std::string("has a lockstep.json that cannot be read: ") + first_line(error.what()));
  }
  return said;
}

}  // namespace
}  // namespace lockstep::model

extern "C" void lockstep_module_file(const std::string& path, const lockstep::recipe::Recipe& recipe,
                                     lockstep::device::DType compute, lockstep::model::Model& model) {
  // Read again each time: a module's tensors belong to the session that it was built for.
  model = lockstep::model::ModuleFile(path).build(recipe, compute);
}
