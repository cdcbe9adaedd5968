#include "lockstep/kernels/elementwise.h"

#include "lockstep/kernels/normal_draw.h"
#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// All ones in the exponent.
LS_INLINE bool is_nonfinite(float value) { return (bits_of(value) & 0x7F800000u) == 0x7F800000u; }

// Elements 4q .. 4q+3 for every q of the run; the last four may reach past `end`.
// `flatten`: see dropout_cpu.cc.
__attribute__((flatten)) void draw_run(const FillNormal& op, int64_t begin, int64_t end) {
  for (int64_t first = begin; first < end; first += 4) {
    const Normal4 drawn = draw_normal(op.seed, op.stream, static_cast<uint64_t>(first) / 4);
    const float four[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
    const int64_t count = smaller(4, end - first);
    for (int64_t i = 0; i < count; ++i) op.values[first + i] = __builtin_fmaf(op.deviation, four[i], op.mean);
  }
}

}  // namespace

void cast(const Cast& op, const Launch&) {
  with_type(op.from_type, [&](auto from_tag) {
    with_type(op.to_type, [&](auto to_tag) {
      using To = decltype(to_tag);
      const auto* from = static_cast<const decltype(from_tag)*>(op.from);
      To* to = static_cast<To*>(op.to);
      for_blocks(op.count, [&](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) to[i] = narrow<To>(widen(from[i]));
      });
    });
  });
}

void add(const Add& op, const Launch&) {
  for_blocks(op.count, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) op.into[i] = op.into[i] + op.from[i];
  });
}

void add_edges(const AddEdges& op, const Launch&) {
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    const T* a = static_cast<const T*>(op.a);
    const T* b = static_cast<const T*>(op.b);
    T* out = static_cast<T*>(op.out);
    for_blocks(op.count, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) out[i] = narrow<T>(widen(a[i]) + widen(b[i]));
    });
  });
}

void fill_normal(const FillNormal& op, const Launch&) {
  for_blocks(op.count, [&](int64_t begin, int64_t end) { draw_run(op, begin, end); });
}

void fill_value(const FillValue& op, const Launch&) {
  for_blocks(op.count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) op.values[i] = op.value;
  });
}

void count_nonfinite(const CountNonfinite& op, const Launch&) {
  int64_t total = 0;
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    const T* values = static_cast<const T*>(op.values);
    for_blocks(op.size, [&](int64_t begin, int64_t end) {
      int64_t found = 0;
#pragma omp simd reduction(+ : found)
      for (int64_t i = begin; i < end; ++i) found += is_nonfinite(widen(values[i])) ? 1 : 0;
#pragma omp atomic
      total += found;
    });
  });
  *op.count = total;
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
