#include "lockstep/model/modules/script_torch.h"

#include <torch/csrc/jit/api/method.h>

#include <map>
#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::model {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw base::ConfigError(129, "model.from = " + base::quoted(path) + " " + why);
}

// The interpreter throws c10::Error, JITException and others, all of them std::exceptions.
at::Tensor result_of(const std::string& path, const std::function<c10::IValue()>& call) {
  c10::IValue value;
  try {
    value = call();
  } catch (const base::Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse(path, "fails: " + spoken(error.what()));
  }
  if (!value.isTensor())
    refuse(path,
           "gives a " + value.tagKind() + ", but it must give one tensor; several heads: torch.cat them");
  return value.toTensor();
}

// A child that stands for a child of the script, with its tensors.
class Mirror : public torch::nn::Module {
 public:
  void add(const torch::jit::Module& script, std::map<const void*, at::Tensor>& known) {
    for (const auto& value : script.named_parameters(/*recurse=*/false))
      register_parameter(value.name, one_of(script, value.name, value.value, known),
                         value.value.requires_grad());
    for (const auto& value : script.named_buffers(/*recurse=*/false))
      register_buffer(value.name, one_of(script, value.name, value.value, known));
    for (const auto& child : script.named_children()) {
      auto mirror = std::make_shared<Mirror>();
      mirror->add(child.value, known);
      register_module(child.name, mirror);
    }
  }

 private:
  // Files keep tied weights as two tensors over one memory.
  static at::Tensor one_of(torch::jit::Module script, const std::string& name, const at::Tensor& value,
                           std::map<const void*, at::Tensor>& known) {
    if (value.numel() == 0) return value;
    const auto [found, is_new] = known.try_emplace(value.const_data_ptr(), value);
    if (is_new || !found->second.sizes().equals(value.sizes())) return value;
    script.setattr(name, found->second);
    return found->second;
  }
};

class Scripted final : public Mirror {
 public:
  explicit Scripted(const torch::jit::Module& script) : script_(script) {
    std::map<const void*, at::Tensor> known;
    add(script, known);
  }
  void train(bool on) override {
    script_.train(on);
    Mirror::train(on);
  }

 private:
  torch::jit::Module script_;
};

}  // namespace

namespace {

// ": self.out(x)" of the line above the first "<--- HERE".
std::string marked_line(const std::string& code) {
  const size_t mark = code.find("<--- HERE");
  const size_t end = mark == std::string::npos ? mark : code.rfind('\n', mark);
  if (end == std::string::npos || end == 0) return "";
  const size_t begin = code.rfind('\n', end - 1);
  if (begin == std::string::npos) return "";
  return ": " + std::string(base::trimmed(code.substr(begin, end - begin)));
}

}  // namespace

std::string spoken(const std::string& error) {
  // Lines of Python, innermost last: `File "net.py", line 12, in forward`, then code with a mark below the
  // guilty line. What PyTorch's own files did with it is not the user's code.
  static const std::regex place("File \"([^\"]*)\", line ([0-9]+), in ");
  std::string where;
  for (std::sregex_iterator at(error.begin(), error.end(), place), end; at != end; ++at) {
    const bool of_torch = at->str(1).find("/torch/") != std::string::npos;
    if (of_torch && !where.empty()) continue;
    where = " (" + at->str(1) + ", line " + at->str(2) + marked_line(at->suffix().str()) + ")";
  }
  std::string what = error;
  const size_t last = error.rfind("Error: ");
  if (last != std::string::npos) what = error.substr(last + 7);
  return std::string(base::trimmed(what.substr(0, what.find('\n')))) + where;
}

std::shared_ptr<torch::nn::Module> module_of(const torch::jit::Module& script) {
  return std::make_shared<Scripted>(script);
}

std::function<at::Tensor(const at::Tensor&)> forward_of(const torch::jit::Module& script, std::string path) {
  return [script = torch::jit::Module(script), path = std::move(path)](const at::Tensor& x) mutable {
    return result_of(path, [&] { return script.forward({x}); });
  };
}

std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> loss_of(const torch::jit::Method& method,
                                                                        std::string path) {
  return [method, path = std::move(path)](const at::Tensor& outputs, const at::Tensor& labels) {
    return result_of(path, [&] { return method({outputs, labels}); });
  };
}

at::Tensor cross_entropy(const at::Tensor& outputs, const at::Tensor& labels, const std::string& path) {
  const int64_t classes = outputs.size(-1), rows = outputs.numel() / classes;
  if (rows != labels.numel()) {
    refuse(path, "gives " + std::to_string(rows) + " predictions of " + std::to_string(classes) +
                     " classes for " + std::to_string(labels.numel()) +
                     " labels; without a method `loss(outputs, labels)` there must be one for each");
  }
  if (outputs.device().is_cpu() && labels.numel() > 0) {
    const int64_t largest = labels.max().item<int64_t>();
    if (largest >= classes) {
      throw base::DataError(129, "model.from = " + base::quoted(path) + " predicts " +
                                     std::to_string(classes) + " classes, but the data has label " +
                                     std::to_string(largest) + "; labels go from 0 to " +
                                     std::to_string(classes - 1));
    }
  }
  return at::cross_entropy_loss(outputs.reshape({rows, classes}), labels.reshape({rows}), {},
                                at::Reduction::None, /*ignore_index=*/-1)
      .reshape(labels.sizes());
}

}  // namespace lockstep::model
