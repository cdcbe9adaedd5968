#include "lockstep/model/segments/linear.h"

#include <algorithm>

#include "lockstep/model/segments/fp8_linear.h"

namespace lockstep::model {

namespace {

kernels::Gemm forward_product(const LinearMap& map, int64_t rows) {
  return {.m = rows,
          .n = map.row_of_y(),
          .k = map.in,
          .in_type = map.type,
          .out_type = map.type,
          .trans_b = map.out_major};
}

kernels::Gemm input_product(const LinearMap& map, int64_t rows) {
  return {.m = rows,
          .n = map.in,
          .k = map.row_of_y(),
          .in_type = map.type,
          .out_type = map.type,
          .trans_b = !map.out_major};
}

kernels::Gemm weight_product(const LinearMap& map, int64_t rows) {
  kernels::Gemm g{
      .m = map.in, .n = map.out, .k = rows, .in_type = map.type, .out_type = DType::f32, .trans_a = true};
  if (map.out_major) std::swap(g.m, g.n);
  if (map.pads()) g.a_row = map.padded_out;
  return g;
}

constexpr const char* kPadded = "padded_weight";

// The weight, and rows of zeros: in fp32, since all that is known of them is that they are whole words.
void pad_weight(const LinearMap& map, const Frame& f) {
  const Tensor from = f.weight("weight"), to = f.prepared(kPadded);
  const int64_t count = map.out * map.in,
                words = (map.padded_out - map.out) * map.in * device::size_of(map.type) / 4;
  f.kernels->cast({map.type, map.type, count, from.data, to.data}, f.launch);
  f.kernels->fill_value(
      {.count = words,
       .values = reinterpret_cast<float*>(to.as<char>() + count * device::size_of(map.type)),
       .value = 0},
      f.launch);
}

// Whether the product itself applies the curve or its slope, as it can for one of them.
bool product_curves(const LinearMap& map, int64_t rows) {
  return map.curve == kernels::ActivationKind::gelu_tanh && !map.in_fp8(rows) && !map.adapters;
}

}  // namespace

void LinearMap::add_to(SegmentPlan& plan, int64_t rows, const std::string& x, const std::string& dy) const {
  if (in_fp8(rows)) return add_fp8_values(*this, plan, rows);
  if (pads()) plan.prepares.push_back({Part::forward, {kPadded, type, {padded_out, in}}});
  if (at_once) return;
  plan.weight_needs.push_back(x);
  plan.weight_needs.push_back(dy);
  if (adapters) adapters->add_to(plan, rows);
}

void LinearMap::prepare(const Frame& f) const {
  if (fp8) return fp8_prepare(*this, f);
  if (pads()) pad_weight(*this, f);
}

void LinearMap::forward(const Frame& f, const void* x, const void* weight, const void* bias_values, void* y,
                        int64_t rows, void* before_curve, const float* amax) const {
  const bool fused = before_curve != nullptr && product_curves(*this, rows);
  void* const product = before_curve != nullptr && !fused ? before_curve : y;
  if (in_fp8(rows)) {
    fp8_forward(*this, f, x, bias_values, product, rows, amax);
  } else {
    kernels::Gemm g = forward_product(*this, rows);
    g.a = x;
    g.b = pads() ? f.prepared(kPadded).data : weight;
    g.c = product;
    g.bias = bias_values;
    if (fused) g.before_gelu = before_curve;
    f.kernels->gemm(g, f.launch);
  }
  if (adapters) adapters->forward(f, x, product, rows);
  if (before_curve != nullptr && !fused)
    f.kernels->activate({curve, type, rows * out, before_curve, y}, f.launch);
}

void LinearMap::backward_input(const Frame& f, const void* dy, const void* weight, void* dx, int64_t rows,
                               const void* curve_at, const float* amax) const {
  const bool fused = curve_at != nullptr && product_curves(*this, rows);
  if (in_fp8(rows)) {
    fp8_backward_input(*this, f, dy, dx, rows, amax);
  } else {
    kernels::Gemm g = input_product(*this, rows);
    if (fused) g.gelu_at = curve_at;
    g.a = dy;
    g.b = pads() ? f.prepared(kPadded).data : weight;
    g.c = dx;
    f.kernels->gemm(g, f.launch);
  }
  if (adapters) adapters->backward_input(f, dy, dx, rows);
  if (curve_at != nullptr && !fused)
    f.kernels->activate_backward({curve, type, rows * in, curve_at, dx, dx}, f.launch);
}

void LinearMap::backward_weight(const Frame& f, const void* x, const void* dy, void* dweight, int64_t rows,
                                bool accumulate) const {
  if (in_fp8(rows)) return fp8_backward_weight(*this, f, dweight, rows, accumulate);
  kernels::Gemm g = weight_product(*this, rows);
  g.a = out_major ? dy : x;
  g.b = out_major ? x : dy;
  g.c = dweight;
  g.beta = accumulate ? 1.0f : 0.0f;
  f.kernels->gemm(g, f.launch);
}

int64_t LinearMap::workspace(int64_t rows, const kernels::Kernels& kernels) const {
  if (in_fp8(rows)) return fp8_workspace(*this, rows, kernels);
  int64_t bytes = adapters ? adapters->workspace(rows, kernels) : 0;
  for (const kernels::Gemm& g :
       {forward_product(*this, rows), input_product(*this, rows), weight_product(*this, rows)}) {
    bytes = std::max(bytes, kernels.gemm_workspace(g));
  }
  return bytes;
}

Cost LinearMap::cost(int64_t rows, Part part) const {
  Cost cost;
  const bool copies = in_fp8(rows);
  if (copies) cost.bytes = fp8_cast_bytes(*this, rows, part);
  switch (part) {
    case Part::forward:
      cost.products.push_back({rows, out, in, copies});
      break;
    case Part::backward_input:
      cost.products.push_back({rows, in, out, copies});
      break;
    case Part::backward_weight:
      cost.products.push_back({in, out, rows, copies, true});
      break;
  }
  if (adapters) adapters->add_cost(cost, rows, part);
  return cost;
}

}  // namespace lockstep::model
