#include "lockstep/kernels/reduce/sum_addends.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

constexpr int64_t kTile = 1024;
constexpr int kLevels = 7;  // a stack of 64 leaves, halved: six sums and what comes next

// Partial sums of a tile, as a binary counter keeps them: addend i is joined once for every one bit at i's
// end.
template <class In, class Out>
LS_INLINE void sum_tile(const SumAddends& op, int64_t begin, int64_t count) {
  alignas(64) float stack[kLevels][kTile];
  int depth = 0;
  for (int i = 0; i < op.inputs; ++i) {
    const In* from = static_cast<const In*>(op.from[i]) + begin;
    float* top = stack[depth++];
    for (int64_t k = 0; k < count; ++k) top[k] = widen(from[k]);
    for (int bits = i; (bits & 1) != 0; bits >>= 1) {
      const float* right = stack[--depth];
      float* left = stack[depth - 1];
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) left[k] += right[k];
    }
  }
  Out* to = static_cast<Out*>(op.to) + begin;
  for (int64_t k = 0; k < count; ++k) to[k] = narrow<Out>(stack[0][k]);
}

}  // namespace

void sum_addends(const SumAddends& op, const Launch&) {
  LS_ASSERT(op.inputs > 0 && op.inputs <= kMostAddends && (op.inputs & (op.inputs - 1)) == 0);
  with_type(op.in, [&](auto in) {
    with_type(op.out, [&](auto out) {
      for_blocks(op.count, [&](int64_t begin, int64_t end) {
        for (int64_t first = begin; first < end; first += kTile)
          sum_tile<decltype(in), decltype(out)>(op, first, smaller(kTile, end - first));
      });
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
