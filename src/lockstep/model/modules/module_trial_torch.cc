#include "lockstep/model/modules/module_trial_torch.h"

#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::model {

namespace {

// Counts what LibTorch allocates for this thread, as its profiler would.
class Meter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now() const { return now_; }
  int64_t peak_since_last() { return std::exchange(peak_, now_); }

 private:
  int64_t now_ = 0, peak_ = 0;
};

// The module computes with copies while this lives: weights in the compute type, statistics that may change.
class StandIn {
 public:
  StandIn(const AutogradOptions& options, const ModuleValues& values) : module_(*options.module) {
    was_training_ = module_.is_training();
    module_.train(true);
    for (const ModuleValue& value : values.trained)
      replace(value.tensor, value.tensor.detach().to(scalar_type(options.type)));
    for (const ModuleValue& value : values.untrained) replace(value.tensor, value.tensor.detach().clone());
  }
  ~StandIn() {
    for (auto& [value, own] : replaced_) value.set_data(own);
    if (!was_training_) module_.train(false);
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

 private:
  void replace(const at::Tensor& value, const at::Tensor& copy) {
    replaced_.emplace_back(value, value.detach());
    at::Tensor(value).set_data(copy);
  }
  torch::nn::Module& module_;
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

at::Tensor zeros_for(const AutogradOptions& options, int64_t samples) {
  const at::Tensor zeros =
      at::zeros(batched(samples, options.in), options.tokens ? at::kLong : scalar_type(options.type));
  return options.reads_batch ? zeros : at::Tensor(zeros).requires_grad_();
}

Trial measure(const AutogradOptions& options, const ModuleValues& values, int64_t samples) {
  const at::Tensor input = zeros_for(options, samples);
  const int64_t version = input._version();
  std::vector<at::Tensor> wanted;
  if (!options.reads_batch) wanted.push_back(input);
  for (const ModuleValue& value : values.trained) wanted.push_back(value.tensor);

  const auto meter = std::make_shared<Meter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  const c10::AutoGradMode with_graph(true);
  Trial trial;
  const at::Tensor output = options.forward(input);
  const std::vector<int64_t> expected = batched(samples, options.out);
  if (output.sizes() != at::IntArrayRef(expected)) {
    refuse(options, samples, "it gives " + text_of(output.sizes()) + ", `out` says " + text_of(expected));
  }
  if (input._version() != version)
    refuse(options, samples, "it changes its input in place; let it work on a copy");
  trial.kept_bytes = meter->now();
  trial.forward_bytes = meter->peak_since_last() - trial.kept_bytes;
  if (output.requires_grad() && !wanted.empty()) {
    const at::Tensor gradient = at::zeros_like(output);
    torch::autograd::grad({output}, wanted, {gradient}, false, false, true);
  }
  trial.backward_bytes = meter->peak_since_last() - trial.kept_bytes;
  return trial;
}

}  // namespace

Trial try_module(const AutogradOptions& options, const ModuleValues& values, int64_t samples) {
  try {
    const StandIn copies(options, values);
    return measure(options, values, samples);
  } catch (const c10::Error& error) {
    const std::string why = error.what_without_backtrace();
    refuse(
        options, samples,
        why.substr(0, why.find('\n')) + (options.type == DType::f32 ? "" : "; try precision.compute=fp32"));
  }
}

}  // namespace lockstep::model
