#include "lockstep/kernels/elementwise/dropout.h"

#include "lockstep/base/philox.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/philox_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

constexpr int64_t kRun = kDraws * 4;  // elements that one run of draws decides
static_assert(kBlock % kRun == 0);

// Factors of the kRun elements from `first`, a multiple of 4: element 4q + j is decided by word j of draw q.
void keep_factors(uint64_t key, uint64_t site, int64_t first, float rate, float* factors) {
  const float scale = 1.0f / (1.0f - rate);
  Draws draws;
  draw(key, static_cast<uint64_t>(first) / 4, site, draws);
  const uint32_t* words[] = {draws.x, draws.y, draws.z, draws.w};
  for (int64_t j = 0; j < 4; ++j) {
    const uint32_t* word = words[j];
#pragma omp simd
    for (int64_t q = 0; q < kDraws; ++q)
      factors[4 * q + j] = base::unit_float(word[q]) >= rate ? scale : 0.0f;
  }
}

}  // namespace

void dropout(const Dropout& op, const Launch& launch) {
  if (op.width > 0) {
    const int64_t element = device::size_of(op.type);
    for (int64_t at = 0, first = op.first; at < op.count; at += op.width, first += op.row) {
      Dropout one = op;
      one.width = one.row = 0;
      one.count = smaller(op.width, op.count - at);
      one.first = first;
      one.x = static_cast<const char*>(op.x) + at * element;
      one.y = static_cast<char*>(op.y) + at * element;
      dropout(one, launch);
    }
    return;
  }
  // The key and the counter of base::site_random.
  const uint64_t key = base::mix64(op.inputs->seed + 0x9E3779B97F4A7C15ull * (op.inputs->step + 1));
  const uint64_t site = (static_cast<uint64_t>(op.slice) << 32) | op.site;
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    const T* x = static_cast<const T*>(op.x);
    T* y = static_cast<T*>(op.y);
    for_blocks(op.count, [&](int64_t begin, int64_t end) {
      alignas(64) float factors[kRun];
      for (int64_t at = begin; at < end;) {
        const int64_t skip = (op.first + at) % 4;  // elements of the first draw that lie before this piece
        keep_factors(key, site, op.first + at - skip, op.rate, factors);
        const float* factor = factors + skip;
        const int64_t count = smaller(kRun - skip, end - at);
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
          // A select, not a product alone: what is dropped is 0 even where x is not a number.
          const float kept = widen(x[at + i]) * factor[i];
          y[at + i] = narrow<T>(factor[i] != 0.0f ? kept : 0.0f);
        }
        at += count;
      }
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
