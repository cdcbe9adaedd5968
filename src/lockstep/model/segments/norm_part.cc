#include "lockstep/model/segments/norm_part.h"

namespace lockstep::model {

std::vector<ParamSpec> NormPart::params() const {
  const Shape shape{options_.width};
  std::vector<ParamSpec> specs;
  specs.push_back({.key = "norm.weight",
                   .name = options_.name + ".weight",
                   .shape = shape,
                   .init = options_.first_weights(),
                   .decay = false,
                   .partial = options_.token_parts > 1});
  if (has_mean()) {
    specs.push_back({.key = "norm.bias",
                     .name = options_.name + ".bias",
                     .shape = shape,
                     .decay = false,
                     .partial = options_.token_parts > 1});
  }
  return specs;
}

void NormPart::add_to(SegmentPlan& plan, int64_t rows, bool keeps_sum) const {
  const ValueSpec sum{keeps_sum ? "residual" : "sum", type_, {rows, options_.width}};
  if (options_.adds) {
    plan.inputs = {"hidden", "residual"};
    (keeps_sum ? plan.outputs : plan.saves).push_back(sum);
    plan.input_needs.push_back(keeps_sum ? "out.residual" : "save.sum");
    plan.same.push_back({"din.hidden", "din.residual"});
  } else if (keeps_sum) {
    plan.passes = {"residual"};
    plan.input_needs.push_back("in.residual");
  } else {
    plan.inputs = {"residual"};
    plan.input_needs.push_back("in.residual");
  }
  if (keeps_sum) {
    plan.input_needs.push_back("dout.residual");
    plan.may_reuse.push_back({"din.residual", "dout.residual"});
  }
  const int64_t parts = options_.pieces * kernels::row_parts(rows / options_.pieces);
  plan.saves.push_back({"rstd", DType::f32, {rows}});
  plan.leaves.push_back({"dnorm_weight", DType::f32, {parts, options_.width}});
  plan.input_needs.push_back("save.rstd");
  plan.weight_needs.push_back("left.dnorm_weight");
  if (has_mean()) {
    plan.saves.push_back({"mean", DType::f32, {rows}});
    plan.leaves.push_back({"dnorm_bias", DType::f32, {parts, options_.width}});
    plan.input_needs.push_back("save.mean");
    plan.weight_needs.push_back("left.dnorm_bias");
  }
  add_pieces(plan, options_);
}

Tensor NormPart::sum(const Frame& f, bool keeps_sum) const {
  if (!options_.adds) return f.in("residual");
  return keeps_sum ? f.out("residual") : f.saved("sum");
}

void NormPart::forward(const Frame& f, void* y, bool keeps_sum) const {
  if (!options_.adds) return norm(f, {.x = f.in("residual").data, .y = y});
  norm(f,
       {.x = f.in("hidden").data, .residual = f.in("residual").data, .sum = sum(f, keeps_sum).data, .y = y});
}

void NormPart::again(const Frame& f, void* y, bool keeps_sum) const {
  norm(f, {.x = sum(f, keeps_sum).data, .y = y});
}

// With what is the same for both.
void NormPart::norm(const Frame& f, kernels::NormForward n) const {
  n.kind = options_.kind;
  n.type = type_;
  n.rows = f.slice.tokens() / options_.token_parts;
  n.width = options_.width;
  n.epsilon = options_.epsilon;
  n.weight_offset = options_.weight_offset;
  n.weight = f.weight("norm.weight").data;
  n.rstd = f.saved("rstd").as<float>();
  if (has_mean()) {
    n.bias = f.weight("norm.bias").data;
    n.mean = f.saved("mean").as<float>();
  }
  f.kernels->norm_forward(n, f.launch);
}

void NormPart::backward_input(const Frame& f, const void* dy, bool keeps_sum) const {
  kernels::NormBackward n{.kind = options_.kind,
                          .type = type_,
                          .rows = f.slice.tokens() / options_.token_parts,
                          .width = options_.width};
  n.dy = dy;
  n.sum = sum(f, keeps_sum).data;
  n.weight = f.weight("norm.weight").data;
  n.rstd = f.saved("rstd").as<float>();
  n.weight_offset = options_.weight_offset;
  if (keeps_sum) n.dresidual = f.dout("residual").data;
  n.dsum = f.din("residual").data;
  n.partial_dweight = f.left("dnorm_weight").as<float>();
  if (has_mean()) {
    n.mean = f.saved("mean").as<float>();
    n.partial_dbias = f.left("dnorm_bias").as<float>();
  }
  backward_in_pieces(f, n, options_);
}

void NormPart::backward_weight(const Frame& f) const {
  const bool weight = f.trains("norm.weight"), bias = has_mean() && f.trains("norm.bias");
  if (!weight && !bias) return;
  const Tensor sums = f.left(weight ? "dnorm_weight" : "dnorm_bias");  // the bias may stand alone
  kernels::NormWeightBackward op{.parts = sums.shape[0],
                                 .width = options_.width,
                                 .partial = sums.as<float>(),
                                 .gradient = f.grad(weight ? "norm.weight" : "norm.bias").as<float>()};
  if (weight && bias) {
    op.partial_bias = f.left("dnorm_bias").as<float>();
    op.bias_gradient = f.grad("norm.bias").as<float>();
  }
  op.accumulate = f.accumulate;
  weights_in_pieces(f, op, options_);
}

// ---- pieces of the tokens

void add_pieces(SegmentPlan& plan, const NormOptions& o) {
  if (o.pieces == 1) return;
  plan.scratch.push_back({Part::backward_weight, {"pieces", DType::f32, {2 * o.pieces, o.width}}});
}

void backward_in_pieces(const Frame& f, kernels::NormBackward n, const NormOptions& o) {
  const int64_t rows = n.rows = n.rows / o.pieces, bytes = rows * o.width * device::size_of(n.type);
  const int64_t sums = kernels::row_parts(rows) * o.width;
  const auto behind = [bytes](const void* values) -> const void* {
    return values != nullptr ? static_cast<const char*>(values) + bytes : nullptr;
  };
  const auto advance = [](auto*& values, int64_t by) {
    if (values != nullptr) values += by;
  };
  for (int piece = 0; piece < o.pieces; ++piece) {
    f.kernels->norm_backward(n, f.launch);
    n.dy = behind(n.dy);
    n.sum = behind(n.sum);
    n.dresidual = behind(n.dresidual);
    n.dsum = static_cast<char*>(n.dsum) + bytes;
    advance(n.rstd, rows);
    advance(n.mean, rows);
    advance(n.partial_dweight, sums);
    advance(n.partial_dbias, sums);
  }
}

void weights_in_pieces(const Frame& f, kernels::NormWeightBackward op, const NormOptions& o) {
  if (o.pieces == 1) return f.kernels->norm_weight_backward(op, f.launch);
  float* const scratch = f.scratch("pieces").as<float>();
  const int64_t parts = op.parts / o.pieces;
  const auto fold = [&](const float* first, float* gradient) {
    kernels::SumAddends sum{.count = o.width, .inputs = o.pieces};
    for (int piece = 0; piece < o.pieces; ++piece) sum.from[piece] = first + piece * o.width;
    sum.to = op.accumulate ? const_cast<void*>(sum.from[0]) : gradient;
    f.kernels->sum_addends(sum, f.launch);
    if (op.accumulate) f.kernels->add({o.width, gradient, first}, f.launch);
  };
  kernels::NormWeightBackward one = op;
  one.parts = parts;
  one.accumulate = false;
  for (int piece = 0; piece < o.pieces; ++piece) {
    one.partial = op.partial + piece * parts * o.width;
    one.gradient = scratch + piece * o.width;
    if (op.partial_bias != nullptr) {
      one.partial_bias = op.partial_bias + piece * parts * o.width;
      one.bias_gradient = scratch + (o.pieces + piece) * o.width;
    }
    f.kernels->norm_weight_backward(one, f.launch);
  }
  fold(scratch, op.gradient);
  if (op.partial_bias != nullptr) fold(scratch + o.pieces * o.width, op.bias_gradient);
}

int64_t NormPart::forward_bytes(int64_t rows) const {
  return rows * options_.width * device::size_of(type_) * (options_.adds ? 4 : 2);
}

}  // namespace lockstep::model
