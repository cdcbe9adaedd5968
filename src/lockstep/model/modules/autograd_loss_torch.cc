#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/kernels/loss/loss.h"
#include "lockstep/model/modules/autograd_torch.h"
#include "lockstep/model/modules/device_torch.h"
#include "lockstep/model/modules/module_file.h"
#include "lockstep/model/modules/module_torch.h"

namespace lockstep::model {

namespace {

class LossSegment : public Segment, public BatchReader {
 public:
  explicit LossSegment(AutogradLossOptions options) : o_(std::move(options)) {}
  std::string name() const override { return "loss"; }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    SegmentPlan plan;
    plan.inputs = {"hidden"};
    plan.batch = {"labels"};
    plan.loss = true;
    plan.scratch = {
        {Part::forward, {"temporaries", DType::u8, {tried(shape.samples, device_of(kernels))}, true}}};
    return plan;
  }

  bool can_be_captured() const override { return false; }  // LibTorch allocates as it goes
  std::optional<DType> label_type() const override { return o_.targets ? DType::f32 : DType::i32; }

  // The sum of the losses, and in training the gradient of loss_scale / valid_tokens times that sum.
  void forward(const Frame& f) const override {
    const OnDevice here(f.device->id(), f.launch, {.exact = o_.exact});
    const bool with_gradient = f.slice.training && f.input_gradient;
    const c10::AutoGradMode mode(with_gradient);
    check_labels(f.batch("labels"), f.slice.samples);
    const at::Tensor outputs =
        view_of(f.in("hidden"), batched(f.slice.samples, o_.in), scalar_type(o_.type), here.device())
            .requires_grad_(with_gradient);
    const at::Tensor words =
        view_of(f.batch("labels"), batched(f.slice.samples, o_.labels), at::kInt, here.device());
    const at::Tensor losses = call(outputs, words);
    const at::Tensor counted = counts(losses, words);
    view_at(f.loss, at::kDouble, here.device())
        .copy_(at::where(counted, losses.detach(), 0.0).to(at::kDouble).sum());
    if (!with_gradient) return;
    const at::Tensor scale = view_at(&f.state->loss_scale, at::kFloat, here.device()).to(at::kDouble) /
                             view_at(&f.inputs->valid_tokens, at::kDouble, here.device());
    const at::Tensor seed = counted.to(losses.scalar_type()) * scale.to(losses.scalar_type());
    const at::Tensor din =
        view_of(f.din("hidden"), batched(f.slice.samples, o_.in), scalar_type(o_.type), here.device());
    at::Tensor found;
    if (losses.requires_grad())
      found = torch::autograd::grad({losses}, {outputs}, {seed}, false, false, true).front();
    found.defined() ? din.copy_(found) : din.zero_();
  }

  void backward_input(const Frame&) const override {}

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part == Part::forward) cost.bytes = 4 * shape.samples * o_.in.numel() * device::size_of(o_.type);
    return cost;
  }

 private:
  template <class T>
  static at::Tensor view_at(const T* where, at::ScalarType type, at::Device device) {
    const Tensor scalar{const_cast<T*>(where), DType::u8, {static_cast<int64_t>(sizeof(T))}};
    return view_of(scalar, at::IntArrayRef(), type, device);
  }

  static device::Id device_of(const kernels::Kernels& kernels) {
    if (&kernels == &kernels::kernels_for(device::Kind::cpu)) return {};
    load_torch_cuda();
    return {device::Kind::cuda, c10::impl::getDeviceGuardImpl(at::kCUDA)->getDevice().index()};
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw base::ConfigError(173, "block " + o_.name + ": the loss function " + why);
  }

  void check_labels(const Tensor& labels, int64_t samples) const {
    if (labels.numel() == samples * o_.labels.numel()) return;
    throw base::ConfigError(175, "block " + o_.name + " takes " + std::to_string(o_.labels.numel()) +
                                     " labels per sample, the data has " +
                                     std::to_string(labels.numel() / samples));
  }

  // Floats are handed over as they are, the numbers of classes as int64.
  at::Tensor call(const at::Tensor& outputs, const at::Tensor& words) const {
    const at::Tensor labels = o_.targets ? words.view(at::kFloat) : words.to(at::kLong);
    const at::Tensor losses = o_.loss(outputs, labels);
    if (losses.numel() != words.numel() && losses.numel() != words.size(0)) {
      refuse("gives " + std::to_string(losses.numel()) + " values for " + std::to_string(words.size(0)) +
             " samples with " + std::to_string(words.numel()) +
             " labels; it must give one for each sample or label: reduction=\"none\"");
    }
    if (!losses.is_floating_point()) refuse("gives values that are not floating-point numbers");
    return losses;
  }

  // Which of the losses count: those of labels that are not -1, or of samples with such a label.
  static at::Tensor counts(const at::Tensor& losses, const at::Tensor& words) {
    const at::Tensor valid = words.ne(kernels::kIgnoredLabel);
    if (losses.numel() == words.numel()) return valid.reshape(losses.sizes());
    return valid.reshape({words.size(0), -1}).any(1).reshape(losses.sizes());
  }

  // Bytes that one call takes at most. Its last sample does not count, as in the last batch of an evaluation.
  int64_t tried(int64_t samples, const device::Id& id) const {
    const auto known = trials_.find(samples);
    if (known != trials_.end()) return known->second;
    const OnDevice here(id, {}, {.exact = o_.exact});
    const c10::AutoGradMode mode(true);
    try {
      const auto options = at::TensorOptions().device(here.device());
      const at::Tensor outputs =
          at::zeros(batched(samples, o_.in), options.dtype(scalar_type(o_.type))).requires_grad_();
      const at::Tensor words = at::zeros(batched(samples, o_.labels), options.dtype(at::kInt));
      words.select(0, samples - 1).fill_(kernels::kIgnoredLabel);
      const std::unique_ptr<MemoryMeter> meter = meter_on(here.device());
      const at::Tensor losses = call(outputs, words);
      if (losses.requires_grad())
        torch::autograd::grad({losses}, {outputs}, {at::zeros_like(losses)}, false, false, true);
      return trials_.emplace(samples, meter->peak_since_last()).first->second;
    } catch (const c10::Error& error) {
      const std::string why = error.what_without_backtrace();
      refuse("fails on zeros, with a label of -1 in the last sample (ignore_index=-1 allows it): " +
             why.substr(0, why.find('\n')));
    }
  }

  AutogradLossOptions o_;
  mutable std::map<int64_t, int64_t> trials_;  // by samples of a slice
};

}  // namespace

Block autograd_loss(AutogradLossOptions options) {
  if (!options.loss || options.name.empty())
    throw base::ConfigError(172, "a loss block needs a name and a loss function");
  std::string name = options.name;
  return block_of(std::move(name), std::make_unique<LossSegment>(std::move(options)));
}

}  // namespace lockstep::model
