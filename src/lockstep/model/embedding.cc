#include "lockstep/model/parts.h"

namespace lockstep::model {

namespace {

class Embed : public Segment {
 public:
  explicit Embed(EmbeddingOptions options) : o_(std::move(options)) {}
  std::string name() const override { return "embed"; }

  std::vector<ParamSpec> params() const override {
    const Init init{Init::Kind::normal, o_.init_std};
    std::vector<ParamSpec> specs;
    specs.push_back({.key = "table",
                     .name = o_.token_name + ".weight",
                     .shape = {o_.vocab, o_.width},
                     .init = init,
                     .split = Split::vocabulary});
    if (o_.positions > 0) {
      specs.push_back({.key = "positions",
                       .name = o_.position_name + ".weight",
                       .shape = {o_.positions, o_.width},
                       .init = init});
    }
    return specs;
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    SegmentPlan plan;
    plan.batch = {"inputs"};
    plan.gives = {{"residual", o_.type, {shape.tokens(), o_.width}}};
    plan.weight_needs = {"dout.residual"};
    if (o_.dropout.rate > 0) {
      plan.scratch.push_back({Part::backward_weight, {"dropped", o_.type, {shape.tokens(), o_.width}}});
    }
    plan.workspace = kernels.embedding_workspace(shape.tokens(), o_.width);
    return plan;
  }

  void forward(const Frame& f) const override {
    const Tensor out = f.out("residual");
    kernels::Embedding e{.type = o_.type,
                         .samples = f.slice.samples,
                         .seq_len = f.slice.seq_len,
                         .width = o_.width,
                         .vocab = o_.vocab,
                         .tokens = f.batch("inputs").as<int32_t>(),
                         .table = f.weight("table").data,
                         .first_position = f.slice.first_position,
                         .out = out.data};
    if (o_.positions > 0) e.positions = f.weight("positions").data;
    f.kernels->embedding(e, f.launch);
    if (o_.dropout.rate > 0 && f.slice.training) drop(f, out.data, out.data);
  }

  void backward_input(const Frame&) const override {}

  void backward_weight(const Frame& f) const override {
    const void* dout = f.dout("residual").data;
    if (o_.dropout.rate > 0) {
      drop(f, dout, f.scratch("dropped").data);
      dout = f.scratch("dropped").data;
    }
    kernels::EmbeddingBackward e{.type = o_.type,
                                 .samples = f.slice.samples,
                                 .seq_len = f.slice.seq_len,
                                 .width = o_.width,
                                 .vocab = o_.vocab,
                                 .tokens = f.batch("inputs").as<int32_t>(),
                                 .dout = dout,
                                 .dtable = f.grad("table").as<float>(),
                                 .position_rows = o_.positions,
                                 .accumulate = f.accumulate};
    if (o_.positions > 0) e.dpositions = f.grad("positions").as<float>();
    f.kernels->embedding_backward(e, f.launch);
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part != Part::backward_input) cost.bytes = 2 * shape.tokens() * o_.width * device::size_of(o_.type);
    return cost;
  }

 private:
  void drop(const Frame& f, const void* x, void* y) const {
    f.kernels->dropout({.type = o_.type,
                        .count = f.slice.tokens() * o_.width,
                        .x = x,
                        .y = y,
                        .rate = o_.dropout.rate,
                        .slice = f.slice.slice,
                        .site = o_.dropout.site,
                        .inputs = f.inputs},
                       f.launch);
  }
  EmbeddingOptions o_;
};

}  // namespace

std::unique_ptr<Segment> make_embedding(EmbeddingOptions options) {
  return std::make_unique<Embed>(std::move(options));
}

}  // namespace lockstep::model
