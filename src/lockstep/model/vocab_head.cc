// The head where tensor ranks hold parts of the vocabulary: no rank ever has a whole row of logits.
#include "lockstep/model/parts.h"

namespace lockstep::model {

namespace {

// Takes "normed", gives this part's "logits" and what they say of each row.
class VocabLogits : public Segment {
 public:
  VocabLogits(HeadOptions options, const Parts& parts)
      : o_(std::move(options)),
        parts_(parts),
        map_{o_.width, o_.vocab / parts.tensor, true, false, o_.type} {}
  std::string name() const override { return "logits"; }

  std::vector<ParamSpec> params() const override {
    return {{.key = "weight",
             .name = o_.name + ".weight",
             .shape = map_.weight_shape(),
             .init = {Init::Kind::normal, o_.init_std},
             .cut = {0, 1, parts_.tensor_rank, parts_.tensor},
             .tied_to = o_.tied_to}};
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const int64_t rows = shape.tokens();
    SegmentPlan plan;
    plan.takes = {"normed"};
    plan.batch = {"labels"};
    plan.gives = {{"logits", o_.type, {rows, map_.out}},
                  {.name = "stats", .dtype = DType::f32, .shape = {rows, 3}, .gradient = false}};
    plan.seams = {{"stats", Seam::gather_tokens}};  // every part's, one behind the other
    plan.input_needs = {"dout.logits"};
    plan.weight_needs = {"in.normed", "dout.logits"};
    plan.workspace = map_.workspace(rows, kernels);
    return plan;
  }

  void forward(const Frame& f) const override {
    const Tensor logits = f.out("logits");
    map_.forward(f, f.in("normed").data, f.weight("weight").data, nullptr, logits.data, f.slice.tokens());
    f.kernels->vocab_stats({.type = o_.type,
                            .rows = f.slice.tokens(),
                            .vocab = map_.out,
                            .first = map_.out * parts_.tensor_rank,
                            .logits = logits.data,
                            .labels = f.batch("labels").as<int32_t>(),
                            .stats = f.out("stats").as<float>()},
                           f.launch);
  }
  void backward_input(const Frame& f) const override {
    map_.backward_input(f, f.dout("logits").data, f.weight("weight").data, f.din("normed").data,
                        f.slice.tokens());
  }
  void backward_weight(const Frame& f) const override {
    map_.backward_weight(f, f.in("normed").data, f.dout("logits").data, f.grad("weight").data,
                         f.slice.tokens(), f.accumulate);
  }
  Cost cost(const SliceShape& shape, Part part) const override { return map_.cost(shape.tokens(), part); }

 private:
  HeadOptions o_;
  Parts parts_;
  LinearMap map_;
};

class VocabLoss : public Segment {
 public:
  VocabLoss(HeadOptions options, const Parts& parts)
      : o_(std::move(options)), parts_(parts), vocab_(o_.vocab / parts.tensor) {}
  std::string name() const override { return "loss"; }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels&) const override {
    SegmentPlan plan;
    plan.takes = {"logits", "stats"};
    plan.batch = {"labels"};
    plan.loss = true;
    plan.may_reuse = {{"din.logits", "in.logits"}};
    plan.scratch = {{Part::forward, {"losses", DType::f32, {shape.tokens()}}}};
    return plan;
  }

  // Logits become their own gradient, in place unless somebody else still reads them.
  void forward(const Frame& f) const override {
    const Tensor losses = f.scratch("losses"), logits = f.in("logits");
    void* values = logits.data;
    if (f.slice.training && f.din("logits").data != logits.data) {
      values = f.din("logits").data;
      f.device->copy(values, logits.data, logits.bytes(), device::CopyKind::device_to_device,
                     f.launch.stream);
    }
    f.kernels->vocab_cross_entropy({.type = o_.type,
                                    .rows = f.slice.tokens(),
                                    .vocab = vocab_,
                                    .first = vocab_ * parts_.tensor_rank,
                                    .parts = parts_.tensor,
                                    .logits = values,
                                    .labels = f.batch("labels").as<int32_t>(),
                                    .stats = f.in("stats").as<float>(),
                                    .losses = losses.as<float>(),
                                    .gradient = f.slice.training,
                                    .inputs = f.inputs,
                                    .state = f.state},
                                   f.launch);
    f.kernels->loss_sum({f.slice.tokens(), losses.as<float>(), f.loss}, f.launch);
  }
  void backward_input(const Frame&) const override {}

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part == Part::forward) cost.bytes = 3 * shape.tokens() * vocab_ * device::size_of(o_.type);
    return cost;
  }

 private:
  HeadOptions o_;
  Parts parts_;
  int64_t vocab_;
};

}  // namespace

void add_vocab_head(std::vector<std::unique_ptr<Segment>>& segments, HeadOptions options,
                    const Parts& parts) {
  segments.push_back(std::make_unique<VocabLogits>(options, parts));
  segments.push_back(std::make_unique<VocabLoss>(std::move(options), parts));
}

}  // namespace lockstep::model
