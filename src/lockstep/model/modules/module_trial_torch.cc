#include "lockstep/model/modules/module_trial_torch.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/base/error.h"
#include "lockstep/model/modules/device_torch.h"

namespace lockstep::model {

namespace {

// The module computes with copies while this lives: weights in the compute type, statistics that may change.
class StandIn {
 public:
  StandIn(const AutogradOptions& options, const ModuleValues& values, at::Device where)
      : module_(*options.module), where_(where) {
    was_training_ = module_.is_training();
    module_.train(true);
    const auto copy = [&](const at::Tensor& value, at::ScalarType type) {
      replace(value, value.detach().to(at::TensorOptions().device(where).dtype(type), /*non_blocking=*/false,
                                       /*copy=*/true));
    };
    for (const ModuleValue& value : values.trained) copy(value.tensor, scalar_type(options.type));
    for (const ModuleValue& value : values.untrained) copy(value.tensor, value.tensor.scalar_type());
  }
  ~StandIn() {
    for (auto& [value, own] : replaced_) value.set_data(own);
    if (!was_training_) module_.train(false);
    // What the trial used goes back to the device: the run's own memory is taken next.
    if (!where_.is_cpu()) c10::getDeviceAllocator(where_.type())->emptyCache();
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

 private:
  void replace(const at::Tensor& value, const at::Tensor& copy) {
    replaced_.emplace_back(value, value.detach());
    at::Tensor(value).set_data(copy);
  }
  torch::nn::Module& module_;
  at::Device where_;
  std::vector<std::pair<at::Tensor, at::Tensor>> replaced_;
  bool was_training_ = true;
};

std::string text_of(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return text.empty() ? "[]" : text + "]";
}

[[noreturn]] void refuse(const AutogradOptions& options, int64_t samples, const std::string& why) {
  throw base::ConfigError(173, "block " + options.name + ", tried on an input of " +
                                   text_of(batched(samples, options.in)) + " in " +
                                   device::name_of(options.type) + ": " + why);
}

at::Tensor zeros_for(const AutogradOptions& options, int64_t samples, at::Device where) {
  const at::ScalarType type = options.tokens ? at::kLong : scalar_type(options.type);
  const at::Tensor zeros =
      at::zeros(batched(samples, options.in), at::TensorOptions().dtype(type).device(where));
  return options.reads_batch ? zeros : at::Tensor(zeros).requires_grad_();
}

Trial measure(const AutogradOptions& options, const ModuleValues& values, int64_t samples, at::Device where) {
  const at::Tensor input = zeros_for(options, samples, where);
  const int64_t version = input._version();
  std::vector<at::Tensor> wanted;
  if (!options.reads_batch) wanted.push_back(input);
  for (const ModuleValue& value : values.trained) wanted.push_back(value.tensor);

  const std::unique_ptr<MemoryMeter> meter = meter_on(where);
  const c10::AutoGradMode with_graph(true);
  Trial trial;
  const at::Tensor output = options.forward(input);
  const std::vector<int64_t> expected = batched(samples, options.out);
  if (output.sizes() != at::IntArrayRef(expected)) {
    refuse(options, samples, "it gives " + text_of(output.sizes()) + ", `out` says " + text_of(expected));
  }
  if (input._version() != version)
    refuse(options, samples, "it modifies its input in place; make it work on a copy");
  trial.kept_bytes = meter->now();
  trial.forward_bytes = meter->peak_since_last() - trial.kept_bytes;
  if (output.requires_grad() && !wanted.empty()) {
    const at::Tensor gradient = at::zeros_like(output);
    torch::autograd::grad({output}, wanted, {gradient}, false, false, true);
  }
  trial.backward_bytes = meter->peak_since_last() - trial.kept_bytes;
  return trial;
}

// LibTorch's backward passes run on a thread of their own, which has no CUDA context until it has launched
// something: cuBLAS, asked first, would print a warning.
void wake_backward_thread(at::Device where) {
  const c10::AutoGradMode with_graph(true);
  const at::Tensor one = at::ones({1}, at::TensorOptions().device(where)).requires_grad_();
  torch::autograd::grad({one * one}, {one}, {at::ones_like(one)});
}

}  // namespace

Trial try_module(const AutogradOptions& options, const ModuleValues& values, int64_t samples,
                 at::Device where) {
  try {
    const StandIn copies(options, values, where);
    // On a GPU the libraries take workspaces of their own the first time, which no graph holds.
    if (!where.is_cpu()) {
      wake_backward_thread(where);
      measure(options, values, samples, where);
    }
    return measure(options, values, samples, where);
  } catch (const c10::Error& error) {
    const std::string why = error.what_without_backtrace();
    const bool repeats = why.find("deterministic") == std::string::npos;
    refuse(options, samples,
           why.substr(0, why.find('\n')) + (!repeats                     ? "; .exact = false allows it"
                                            : options.type == DType::f32 ? ""
                                                                         : "; try precision.compute=fp32"));
  }
}

}  // namespace lockstep::model
