#include "lockstep/model/segments/fp8_linear.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/round.h"

namespace lockstep::model {

namespace {

using kernels::Fp8;
using kernels::Fp8Gemm;
using kernels::Fp8Operand;
using kernels::Fp8Scaling;

// A matrix [rows, columns] that becomes two copies: NAME and NAME + "t", with NAME + "_scales" and so on.
struct Source {
  const char* name;
  int64_t rows, columns;
  Fp8 format;
  Fp8Scaling scaling;

  std::string straight() const { return name; }
  std::string transposed() const { return std::string(name) + "t"; }
  std::string amax() const { return std::string(name) + "_amax"; }
};

Source x_of(const LinearMap& map, int64_t rows) { return {"x8", rows, map.in, Fp8::e4m3, map.fp8->scaling}; }
Source dy_of(const LinearMap& map, int64_t rows) {
  return {"dy8", rows, map.out, map.fp8->gradients, map.fp8->scaling};
}
Source weight_of(const LinearMap& map) {
  const Shape shape = map.weight_shape();
  const bool squares = map.fp8->scaling == Fp8Scaling::block;
  return {"w8", shape[0], shape[1], Fp8::e4m3, squares ? Fp8Scaling::square : map.fp8->scaling};
}

std::string scales_of(const std::string& copy) { return copy + "_scales"; }

// Where pieces of a sequence have theirs side by side, each one's begin where products can take them.
Shape room_for_scales(const Source& s, int64_t rows, int64_t columns) {
  constexpr int64_t kTogether = kernels::kFp8ScaleAlignment / sizeof(float);
  return {base::round_up(fp8_scale_count(s.scaling, rows, columns), kTogether)};
}

std::vector<ValueSpec> straight_values(const Source& s) {
  return {{s.straight(), DType::u8, {s.rows, s.columns}},
          {scales_of(s.straight()), DType::f32, room_for_scales(s, s.rows, s.columns)}};
}
std::vector<ValueSpec> transposed_values(const Source& s) {
  return {{s.transposed(), DType::u8, {s.columns, s.rows}},
          {scales_of(s.transposed()), DType::f32, room_for_scales(s, s.columns, s.rows)}};
}
ValueSpec amax_value(const Source& s) {
  return {s.amax(), DType::f32, {fp8_amax_count(s.scaling, s.rows, s.columns)}};
}

// Where the values of a copy are found: of the weight what prepare() made; else scratch, what forward saved
// or what backward_input left.
enum class Kept : uint8_t { prepared, scratch, saved, left };

Tensor find(const Frame& f, Kept kept, const std::string& name) {
  switch (kept) {
    case Kept::prepared:
      return f.prepared(name);
    case Kept::saved:
      return f.saved(name);
    case Kept::left:
      return f.left(name);
    default:
      return f.scratch(name);
  }
}

kernels::Fp8Copy copy_of(const Frame& f, Kept kept, const std::string& name) {
  return {find(f, kept, name).data, find(f, kept, scales_of(name)).as<float>()};
}

Fp8Operand operand(const Frame& f, const Source& s, Kept kept, const std::string& name) {
  return {s.format, s.scaling, find(f, kept, name).data, find(f, kept, scales_of(name)).as<float>()};
}

// Where the copies of one matrix go.
struct Copies {
  Kept straight;
  std::optional<Kept> transposed;  // only where something will read it
};

void cast(const Frame& f, const Source& s, const void* from, const float* amax, const Copies& to) {
  if (amax == nullptr && fp8_amax_count(s.scaling, s.rows, s.columns) > 0) {
    float* found = find(f, to.straight, s.amax()).as<float>();
    f.kernels->fp8_amax({s.scaling, s.rows, s.columns, from, found}, f.launch);
    amax = found;
  }
  kernels::Fp8Cast op{.format = s.format,
                      .scaling = s.scaling,
                      .rows = s.rows,
                      .columns = s.columns,
                      .x = from,
                      .amax = amax,
                      .straight = copy_of(f, to.straight, s.straight())};
  if (to.transposed) op.transposed = copy_of(f, *to.transposed, s.transposed());
  f.kernels->fp8_cast(op, f.launch);
}

Fp8Gemm forward_product(const LinearMap& map, int64_t rows) {
  return {.m = rows, .n = map.out, .k = map.in, .out_type = map.type, .fast_sum = map.fp8->fast_forward};
}
Fp8Gemm input_product(const LinearMap& map, int64_t rows) {
  return {.m = rows, .n = map.in, .k = map.out, .out_type = map.type, .fast_sum = map.fp8->fast_backward};
}
Fp8Gemm weight_product(const LinearMap& map, int64_t rows) {
  const Shape shape = map.weight_shape();
  return {
      .m = shape[0], .n = shape[1], .k = rows, .out_type = DType::f32, .fast_sum = map.fp8->fast_backward};
}

}  // namespace

void add_fp8_values(const LinearMap& map, SegmentPlan& plan, int64_t rows) {
  const Source w = weight_of(map), x = x_of(map, rows), dy = dy_of(map, rows);
  // Forward multiplies along `in`: that is how [out, in] lies, and how [in, out] lies transposed.
  for (const auto& [part, straight] :
       {std::pair(Part::forward, map.out_major), std::pair(Part::backward_input, !map.out_major)}) {
    for (const ValueSpec& spec : straight ? straight_values(w) : transposed_values(w))
      plan.prepares.push_back({map.at_once ? Part::forward : part, spec});
  }
  plan.prepares.push_back({Part::forward, amax_value(w)});
  const auto scratch = [&](Part part, const std::vector<ValueSpec>& specs) {
    for (const ValueSpec& spec : specs) plan.scratch.push_back({map.at_once ? Part::forward : part, spec});
  };
  scratch(Part::forward, straight_values(x));
  scratch(Part::forward, {amax_value(x)});
  scratch(Part::backward_input, straight_values(dy));
  scratch(Part::backward_input, {amax_value(dy)});
  if (map.at_once) {
    scratch(Part::forward, transposed_values(x));
    scratch(Part::forward, transposed_values(dy));
    return;
  }
  for (const ValueSpec& spec : transposed_values(x)) {
    plan.saves.push_back(spec);
    plan.weight_needs.push_back("save." + spec.name);
  }
  for (const ValueSpec& spec : transposed_values(dy)) {
    plan.leaves.push_back(spec);
    plan.weight_needs.push_back("left." + spec.name);
  }
}

void fp8_prepare(const LinearMap& map, const Frame& f) {
  cast(f, weight_of(map), f.weight("weight").data, nullptr,
       {.straight = Kept::prepared, .transposed = Kept::prepared});
}

void fp8_forward(const LinearMap& map, const Frame& f, const void* x, const void* bias, void* y, int64_t rows,
                 const float* amax) {
  const Source from = x_of(map, rows), w = weight_of(map);
  Copies to{.straight = Kept::scratch};
  if (f.slice.training && f.trains("weight")) to.transposed = map.at_once ? Kept::scratch : Kept::saved;
  cast(f, from, x, amax, to);
  Fp8Gemm product = forward_product(map, rows);
  product.a = operand(f, from, Kept::scratch, from.straight());
  product.b = operand(f, w, Kept::prepared, map.out_major ? w.straight() : w.transposed());
  product.c = y;
  product.bias = bias;
  f.kernels->fp8_gemm(product, f.launch);
}

void fp8_backward_input(const LinearMap& map, const Frame& f, const void* dy, void* dx, int64_t rows,
                        const float* amax) {
  const Source from = dy_of(map, rows), w = weight_of(map);
  Copies to{.straight = Kept::scratch};
  if (f.trains("weight")) to.transposed = map.at_once ? Kept::scratch : Kept::left;
  cast(f, from, dy, amax, to);
  Fp8Gemm product = input_product(map, rows);
  product.a = operand(f, from, Kept::scratch, from.straight());
  product.b = operand(f, w, Kept::prepared, map.out_major ? w.transposed() : w.straight());
  product.c = dx;
  f.kernels->fp8_gemm(product, f.launch);
}

void fp8_backward_weight(const LinearMap& map, const Frame& f, void* dweight, int64_t rows, bool accumulate) {
  const Source x = x_of(map, rows), dy = dy_of(map, rows);
  const Fp8Operand of_x = operand(f, x, map.at_once ? Kept::scratch : Kept::saved, x.transposed());
  const Fp8Operand of_dy = operand(f, dy, map.at_once ? Kept::scratch : Kept::left, dy.transposed());
  Fp8Gemm product = weight_product(map, rows);
  product.a = map.out_major ? of_dy : of_x;
  product.b = map.out_major ? of_x : of_dy;
  product.c = dweight;
  product.beta = accumulate ? 1.0f : 0.0f;
  f.kernels->fp8_gemm(product, f.launch);
}

int64_t fp8_workspace(const LinearMap& map, int64_t rows, const kernels::Kernels& kernels) {
  int64_t bytes = 0;
  for (const Fp8Gemm& g : {forward_product(map, rows), input_product(map, rows), weight_product(map, rows)})
    bytes = std::max(bytes, kernels.fp8_gemm_workspace(g));
  return bytes;
}

// Two bytes are read and two written. The weight's cast is an instruction of its own.
int64_t fp8_cast_bytes(const LinearMap& map, int64_t rows, Part part) {
  return part == Part::forward ? 4 * rows * map.in : part == Part::backward_input ? 4 * rows * map.out : 0;
}

}  // namespace lockstep::model
