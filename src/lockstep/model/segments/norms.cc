// Norms that stand by themselves: before maps that tensor ranks share, behind the last layer, and behind a
// map.
#include "lockstep/model/segments/norm_part.h"

namespace lockstep::model {

namespace {

// To the tensor ranks behind it, each of which holds a part of the next map.
Seam seam_to_maps(const Parts& parts) {
  if (parts.tensor == 1) return Seam::none;
  return parts.sequence ? Seam::gather_tokens : Seam::spread;
}

// A norm of its own: takes hidden and residual, gives "normed" and, but for the last of a model, the new
// residual.
class Norm : public Segment {
 public:
  Norm(std::string name, NormOptions options, DType type, bool keeps_sum, const Parts& parts)
      : name_(std::move(name)),
        width_(options.width),
        token_parts_(options.token_parts),
        type_(type),
        keeps_sum_(keeps_sum),
        seam_(seam_to_maps(parts)),
        again_(options.again),
        norm_(std::move(options), type) {}
  std::string name() const override { return name_; }
  bool adds_gradients_once(const SliceShape&) const override { return true; }
  std::vector<ParamSpec> params() const override { return norm_.params(); }
  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels&) const override {
    SegmentPlan plan;
    const int64_t rows = shape.tokens() / token_parts_;
    norm_.add_to(plan, rows, keeps_sum_);
    plan.outputs.push_back({"normed", type_, {rows, width_}});
    plan.input_needs.push_back("dout.normed");
    plan.seams = {{"normed", seam_}};
    if (again_.empty()) return plan;
    plan.outputs.push_back({again_, type_, {rows, width_}});
    plan.input_needs.push_back("dout." + again_);
    plan.seams.push_back({again_, seam_});
    plan.scratch.push_back({Part::backward_input, {"dnormed", type_, {rows, width_}}});
    return plan;
  }
  void forward(const Frame& f) const override {
    const Tensor normed = f.out("normed");
    norm_.forward(f, normed.data, keeps_sum_);
    if (!again_.empty())
      f.kernels->cast({type_, type_, normed.numel(), normed.data, f.out(again_).data}, f.launch);
  }
  void backward_input(const Frame& f) const override {
    Tensor dnormed = f.dout("normed");
    if (!again_.empty()) {
      dnormed = f.scratch("dnormed");
      f.kernels->add_edges({type_, dnormed.numel(), f.dout("normed").data, f.dout(again_).data, dnormed.data},
                           f.launch);
    }
    norm_.backward_input(f, dnormed.data, keeps_sum_);
  }
  void backward_weight(const Frame& f) const override { norm_.backward_weight(f); }
  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part == Part::backward_weight) return cost;
    const int64_t rows = shape.tokens() / token_parts_;
    cost.bytes = norm_.forward_bytes(rows);
    // The copy, and the sum of what comes back from both.
    if (!again_.empty())
      cost.bytes += (part == Part::forward ? 2 : 3) * rows * width_ * device::size_of(type_);
    return cost;
  }

 private:
  std::string name_;
  int64_t width_;
  int token_parts_;
  DType type_;
  bool keeps_sum_;
  Seam seam_;
  std::string again_;
  NormPart norm_;
};

// The sum of hidden and residual, as it is: for layers that norm what their maps give, not what they take.
class Sum : public Segment {
 public:
  Sum(std::string name, const NormOptions& options, DType type, const Parts& parts)
      : name_(std::move(name)), options_(options), type_(type), seam_(seam_to_maps(parts)) {}
  std::string name() const override { return name_; }
  bool adds_gradients_once(const SliceShape&) const override { return true; }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels&) const override {
    const Shape whole{shape.tokens() / options_.token_parts, options_.width};
    SegmentPlan plan;
    if (options_.adds) {
      plan.inputs = {"hidden", "residual"};
      plan.outputs = {{"residual", type_, whole}};
      plan.same = {{"din.hidden", "din.residual"}};
    } else {
      plan.passes = {"residual"};
    }
    plan.outputs.push_back({"normed", type_, whole});
    plan.input_needs = {"dout.residual", "dout.normed"};
    plan.may_reuse = {{"din.residual", "dout.residual"}};
    plan.seams = {{"normed", seam_}};
    return plan;
  }

  void forward(const Frame& f) const override {
    Tensor sum = f.in("residual");
    if (options_.adds) {
      sum = f.out("residual");
      add(f, f.in("residual"), f.in("hidden"), sum);
    }
    f.kernels->cast({type_, type_, values_of(f), sum.data, f.out("normed").data}, f.launch);
  }
  void backward_input(const Frame& f) const override {
    add(f, f.dout("residual"), f.dout("normed"), f.din("residual"));
  }
  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part != Part::backward_weight)
      cost.bytes = 4 * shape.tokens() / options_.token_parts * options_.width * device::size_of(type_);
    return cost;
  }

 private:
  void add(const Frame& f, const Tensor& a, const Tensor& b, const Tensor& out) const {
    f.kernels->add_edges({type_, values_of(f), a.data, b.data, out.data}, f.launch);
  }
  int64_t values_of(const Frame& f) const { return f.slice.tokens() / options_.token_parts * options_.width; }
  std::string name_;
  NormOptions options_;
  DType type_;
  Seam seam_;
};

// A norm of "hidden" alone, before it reaches the residual.
class PostNorm : public Segment {
 public:
  PostNorm(std::string name, NormOptions options, DType type)
      : name_(std::move(name)), options_(std::move(options)), type_(type) {}
  std::string name() const override { return name_; }
  bool adds_gradients_once(const SliceShape&) const override { return true; }

  std::vector<ParamSpec> params() const override {
    return {{.key = "weight",
             .name = options_.name + ".weight",
             .shape = {options_.width},
             .init = options_.first_weights(),
             .decay = false,
             .partial = options_.token_parts > 1}};
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels&) const override {
    const int64_t rows = shape.tokens() / options_.token_parts;
    SegmentPlan plan;
    plan.inputs = {"hidden"};
    plan.outputs = {{"hidden", type_, {rows, options_.width}}};
    plan.saves = {{"rstd", DType::f32, {rows}}};
    plan.leaves = {{"dweight",
                    DType::f32,
                    {options_.pieces * kernels::row_parts(rows / options_.pieces), options_.width}}};
    plan.input_needs = {"in.hidden", "save.rstd", "dout.hidden"};
    plan.weight_needs = {"left.dweight"};
    add_pieces(plan, options_);
    return plan;
  }

  void forward(const Frame& f) const override {
    f.kernels->norm_forward({.kind = kernels::NormKind::rms,
                             .type = type_,
                             .rows = rows(f),
                             .width = options_.width,
                             .epsilon = options_.epsilon,
                             .x = f.in("hidden").data,
                             .weight = f.weight("weight").data,
                             .y = f.out("hidden").data,
                             .rstd = f.saved("rstd").as<float>(),
                             .weight_offset = options_.weight_offset},
                            f.launch);
  }
  void backward_input(const Frame& f) const override {
    backward_in_pieces(f,
                       {.kind = kernels::NormKind::rms,
                        .type = type_,
                        .rows = rows(f),
                        .width = options_.width,
                        .dy = f.dout("hidden").data,
                        .sum = f.in("hidden").data,
                        .weight = f.weight("weight").data,
                        .rstd = f.saved("rstd").as<float>(),
                        .dsum = f.din("hidden").data,
                        .partial_dweight = f.left("dweight").as<float>(),
                        .weight_offset = options_.weight_offset},
                       options_);
  }
  void backward_weight(const Frame& f) const override {
    if (!f.trains("weight")) return;
    const Tensor sums = f.left("dweight");
    weights_in_pieces(f,
                      {.parts = sums.shape[0],
                       .width = options_.width,
                       .partial = sums.as<float>(),
                       .gradient = f.grad("weight").as<float>(),
                       .accumulate = f.accumulate},
                      options_);
  }
  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part != Part::backward_weight)
      cost.bytes = 2 * shape.tokens() / options_.token_parts * options_.width * device::size_of(type_);
    return cost;
  }

 private:
  int64_t rows(const Frame& f) const { return f.slice.tokens() / options_.token_parts; }
  std::string name_;
  NormOptions options_;
  DType type_;
};

NormOptions for_tokens_of(NormOptions options, const Parts& parts) {
  options.token_parts = parts.sequence ? parts.tensor : 1;
  if (parts.fixes_products()) options.pieces = parts.sequence ? parts.strands_here() : parts.product_strands;
  return options;
}

}  // namespace

std::unique_ptr<Segment> make_final_norm(NormOptions options, DType type, const Parts& parts) {
  return std::make_unique<Norm>("norm", for_tokens_of(std::move(options), parts), type, false, parts);
}

std::unique_ptr<Segment> make_norm(const std::string& segment, NormOptions options, DType type,
                                   const Parts& parts) {
  return std::make_unique<Norm>(segment, for_tokens_of(std::move(options), parts), type, true, parts);
}

std::unique_ptr<Segment> make_sum(const std::string& segment, NormOptions options, DType type,
                                  const Parts& parts) {
  return std::make_unique<Sum>(segment, for_tokens_of(std::move(options), parts), type, parts);
}

std::unique_ptr<Segment> make_post_norm(const std::string& segment, NormOptions options, DType type,
                                        const Parts& parts) {
  return std::make_unique<PostNorm>(segment, for_tokens_of(std::move(options), parts), type);
}

}  // namespace lockstep::model
