#include "lockstep/base/error.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

class Classify : public Segment {
 public:
  explicit Classify(ClassifyOptions options) : o_(options) {}
  std::string name() const override { return "classify"; }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels&) const override {
    SegmentPlan plan;
    plan.inputs = {"hidden"};
    plan.batch = {"labels"};
    plan.loss = true;
    plan.scratch = {{Part::forward, {"losses", DType::f32, {shape.samples}}}};
    return plan;
  }

  // A copy of the logits becomes the gradient in place; without a gradient nothing is written to them.
  void forward(const Frame& f) const override {
    Tensor logits = f.in("hidden");
    const Tensor labels = f.batch("labels"), losses = f.scratch("losses");
    check_sizes(logits, labels, f.slice.samples);
    if (f.slice.training) {
      f.kernels->cast({o_.type, o_.type, logits.numel(), logits.data, f.din("hidden").data}, f.launch);
      logits = f.din("hidden");
    }
    f.kernels->cross_entropy({.type = o_.type,
                              .rows = f.slice.samples,
                              .vocab = o_.classes,
                              .logits = logits.data,
                              .labels = labels.as<int32_t>(),
                              .losses = losses.as<float>(),
                              .gradient = f.slice.training,
                              .inputs = f.inputs,
                              .state = f.state},
                             f.launch);
    f.kernels->loss_sum({f.slice.samples, losses.as<float>(), f.loss}, f.launch);
  }

  void backward_input(const Frame&) const override {}

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part == Part::forward) cost.bytes = 4 * shape.samples * o_.classes * device::size_of(o_.type);
    return cost;
  }

 private:
  void check_sizes(const Tensor& logits, const Tensor& labels, int64_t samples) const {
    if (logits.numel() != samples * o_.classes || logits.dtype != o_.type) {
      throw base::ConfigError(
          170, "the loss expects " + std::to_string(o_.classes) + " " + device::name_of(o_.type) +
                   " values per sample, but the previous block outputs " + logits.shape.to_string() + " " +
                   device::name_of(logits.dtype) + " for " + std::to_string(samples) + " samples");
    }
    if (labels.numel() != samples) {
      throw base::ConfigError(171, "the loss expects one label per sample, but the data has " +
                                       std::to_string(labels.numel() / samples) +
                                       "; labels_per_sample() must return 1");
    }
  }

  ClassifyOptions o_;
};

}  // namespace

std::unique_ptr<Segment> make_classify(ClassifyOptions options) {
  return std::make_unique<Classify>(options);
}

}  // namespace lockstep::model
