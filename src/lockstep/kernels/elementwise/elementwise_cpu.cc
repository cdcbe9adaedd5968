#include "lockstep/kernels/elementwise/elementwise.h"

#include "lockstep/kernels/normal_draw.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/philox_cpu.h"
#include "lockstep/kernels/tanh_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// All ones in the exponent.
LS_INLINE bool is_nonfinite(float value) { return (bits_of(value) & 0x7F800000u) == 0x7F800000u; }

constexpr int64_t kRun = kDraws * 4;  // elements of one run of draws
static_assert(kBlock % kRun == 0);

// `flatten`: what other headers declare inline must be inlined here, both to vectorise and so that no copy
// of it compiled for this level can be picked by the linker for the rest of the program.
__attribute__((flatten)) void draw_run(const FillNormal& op, int64_t first, float* values) {
  Draws draws;
  draw(normal_key(op.seed, op.stream), static_cast<uint64_t>(op.first / 4 + first / 4), kNormalCounter,
       draws);
#pragma omp simd
  for (int64_t q = 0; q < kDraws; ++q) {
    float a, b, c, d;
    normal_pair(draws.x[q], draws.y[q], &a, &b);
    normal_pair(draws.z[q], draws.w[q], &c, &d);
    values[4 * q] = __builtin_fmaf(op.deviation, a, op.mean);
    values[4 * q + 1] = __builtin_fmaf(op.deviation, b, op.mean);
    values[4 * q + 2] = __builtin_fmaf(op.deviation, c, op.mean);
    values[4 * q + 3] = __builtin_fmaf(op.deviation, d, op.mean);
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

void regroup(const Regroup& op, const Launch&) {
  const int64_t run = op.width * device::size_of(op.type), row_bytes = op.outer * op.inner * run;
  for_items(op.rows, op.outer * op.inner * op.width, [&](int64_t row) {
    const char* x = static_cast<const char*>(op.x) + row * row_bytes;
    char* y = static_cast<char*>(op.y) + row * row_bytes;
    for (int64_t i = 0; i < op.outer; ++i) {
      for (int64_t j = 0; j < op.inner; ++j)
        __builtin_memcpy(y + (j * op.outer + i) * run, x + (i * op.inner + j) * run,
                         static_cast<size_t>(run));
    }
  });
}

void soft_cap(const SoftCap& op, const Launch&) {
  const float inverse = 1.0f / op.cap;
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    T* values = static_cast<T*>(op.values);
    for_blocks(op.count, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i)
        values[i] = narrow<T>(op.cap * hyperbolic_tangent(widen(values[i]) * inverse));
    });
  });
}

// One draw gives four values; those before op.first are left out.
void fill_normal(const FillNormal& op, const Launch&) {
  const int64_t before = op.first % 4;
  for_blocks(before + op.count, [&](int64_t begin, int64_t end) {
    alignas(64) float values[kRun];
    for (int64_t first = begin; first < end; first += kRun) {
      draw_run(op, first, values);
      const int64_t count = smaller(kRun, end - first);
      for (int64_t i = first == 0 ? before : 0; i < count; ++i) op.values[first + i - before] = values[i];
    }
  });
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
      __atomic_fetch_add(&total, found, __ATOMIC_RELAXED);
    });
  });
  *op.count = total;
}

void mark(const Mark& op, const Launch&) { *op.word = op.value; }

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
