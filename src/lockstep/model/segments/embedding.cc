#include <cmath>
#include <utility>

#include "lockstep/model/segments/parts.h"
#include "lockstep/model/segments/strands.h"

namespace lockstep::model {

namespace {

// As `type` holds it.
float rounded(double value, DType type) {
  if (type == DType::f32) return static_cast<float>(value);
  const int bits = type == DType::bf16 ? 8 : 11;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits));
}

class Embed : public Segment {
 public:
  explicit Embed(EmbeddingOptions options) : o_(std::move(options)), scale_(rounded(o_.scale, o_.type)) {}
  std::string name() const override { return "embed"; }
  // A context rank has two runs of a sequence.
  bool adds_gradients_once(const SliceShape&) const override { return o_.parts.context == 1; }

  std::vector<ParamSpec> params() const override {
    const Init init{Init::Kind::normal, o_.init_std};
    std::vector<ParamSpec> specs;
    specs.push_back({.key = "table",
                     .name = o_.token_name + ".weight",
                     .shape = {vocab(), o_.width},
                     .init = init,
                     .cut = cut_rows(o_.vocab, o_.parts.tensor_rank, o_.parts.tensor),
                     .table = true});
    if (o_.positions > 0) {
      specs.push_back({.key = "positions",
                       .name = o_.position_name + ".weight",
                       .shape = {o_.positions, o_.width},
                       .init = init,
                       .table = true});
    }
    return specs;
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    SegmentPlan plan;
    plan.batch = {"inputs"};
    if (reads_documents()) plan.batch.push_back("documents");
    plan.outputs = {{"residual", o_.type, {shape.tokens(), o_.width}}};
    plan.weight_needs = {"dout.residual"};
    if (o_.dropout.rate > 0) {
      plan.scratch.push_back({Part::backward_weight, {"dropped", o_.type, {shape.tokens(), o_.width}}});
    }
    plan.workspace = kernels.embedding_workspace(shape.tokens(), o_.width);
    if (o_.parts.tensor > 1)
      plan.seams = {{"residual", o_.parts.sequence ? Seam::scatter_tokens : Seam::sum}};
    return plan;
  }

  void forward(const Frame& f) const override {
    const Tensor out = f.out("residual");
    for (const PositionedRows& rows : f.slice.rows()) {
      kernels::Embedding e{.type = o_.type,
                           .samples = rows.samples,
                           .seq_len = rows.length,
                           .width = o_.width,
                           .vocab = vocab(),
                           .tokens = f.batch("inputs").as<int32_t>() + rows.first_row,
                           .table = f.weight("table").data,
                           .first_position = rows.position,
                           .first_token = first_token(),
                           .out = at(out.data, rows),
                           .scale = scale_,
                           .row_positions = f.slice.positions,
                           .begins = f.document_begins(rows)};
      // Of the tensor ranks, whose rows are added up, one adds the position.
      if (o_.positions > 0 && o_.parts.tensor_rank == 0) e.positions = f.weight("positions").data;
      f.kernels->embedding(e, f.launch);
    }
    if (o_.dropout.rate > 0 && f.slice.training) drop(f, o_.dropout, o_.type, o_.width, out.data, out.data);
  }

  void backward_input(const Frame&) const override {}

  void backward_weight(const Frame& f) const override {
    void* dout = f.dout("residual").data;
    if (o_.dropout.rate > 0) {
      void* dropped = f.scratch("dropped").data;
      drop(f, o_.dropout, o_.type, o_.width, dout, dropped);
      dout = dropped;
    }
    bool accumulate = f.accumulate;
    for (const PositionedRows& rows : f.slice.rows()) {
      kernels::EmbeddingBackward e{.type = o_.type,
                                   .samples = rows.samples,
                                   .seq_len = rows.length,
                                   .width = o_.width,
                                   .vocab = vocab(),
                                   .tokens = f.batch("inputs").as<int32_t>() + rows.first_row,
                                   .dout = at(dout, rows),
                                   .position_rows = o_.positions,
                                   .first_position = rows.position,
                                   .first_token = first_token(),
                                   .accumulate = std::exchange(accumulate, true),
                                   .scale = scale_,
                                   .begins = f.document_begins(rows)};
      if (f.trains("table")) e.dtable = f.grad("table").as<float>();
      if (o_.positions > 0 && f.trains("positions")) e.dpositions = f.grad("positions").as<float>();
      f.kernels->embedding_backward(e, f.launch);
    }
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part != Part::backward_input) cost.bytes = 2 * shape.tokens() * o_.width * device::size_of(o_.type);
    return cost;
  }

 private:
  bool reads_documents() const { return o_.documents && o_.positions > 0; }
  int64_t vocab() const { return rows_of_part(o_.vocab, o_.parts.tensor); }
  int64_t first_token() const { return vocab() * o_.parts.tensor_rank; }
  void* at(void* values, const PositionedRows& rows) const {
    return static_cast<char*>(values) + rows.first_row * o_.width * device::size_of(o_.type);
  }
  EmbeddingOptions o_;
  float scale_;
};

}  // namespace

std::unique_ptr<Segment> make_embedding(EmbeddingOptions options) {
  if (options.parts.fixes_products()) {
    return in_strands(options.parts, {.summed = {"residual"}}, [&](const Parts& one) {
      EmbeddingOptions of_one = options;
      of_one.parts = one;
      return make_embedding(std::move(of_one));
    });
  }
  return std::make_unique<Embed>(std::move(options));
}

}  // namespace lockstep::model
