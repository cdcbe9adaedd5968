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
  const int64_t parts = kernels::row_parts(rows);
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
  f.kernels->norm_backward(n, f.launch);
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
  f.kernels->norm_weight_backward(op, f.launch);
}

int64_t NormPart::forward_bytes(int64_t rows) const {
  return rows * options_.width * device::size_of(type_) * (options_.adds ? 4 : 2);
}

}  // namespace lockstep::model
