#include "lockstep/kernels/dropout.h"

#include "lockstep/base/philox.h"
#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

constexpr int64_t kDraws = 64;  // Philox calls at a time, four words each

struct Words {
  uint32_t words[kDraws * 4];
};

// `flatten`: philox() must be inlined here, both to vectorise and so that no copy of it compiled for
// this level can be picked by the linker for the rest of the program.
__attribute__((flatten)) void draw(const Dropout& op, uint64_t first_q, Words& out) {
  const uint64_t seed = op.inputs->seed, step = op.inputs->step;
  uint32_t x[kDraws], y[kDraws], z[kDraws], w[kDraws];
#pragma omp simd
  for (int64_t i = 0; i < kDraws; ++i) {
    const base::Random4 random =
        base::site_random(seed, step, op.slice, op.site, first_q + static_cast<uint64_t>(i));
    x[i] = random.x;
    y[i] = random.y;
    z[i] = random.z;
    w[i] = random.w;
  }
  for (int64_t i = 0; i < kDraws; ++i) {
    out.words[4 * i] = x[i];
    out.words[4 * i + 1] = y[i];
    out.words[4 * i + 2] = z[i];
    out.words[4 * i + 3] = w[i];
  }
}

}  // namespace

void dropout(const Dropout& op, const Launch&) {
  const float scale = 1.0f / (1.0f - op.rate), rate = op.rate;
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    const T* x = static_cast<const T*>(op.x);
    T* y = static_cast<T*>(op.y);
    for_blocks(op.count, [&](int64_t begin, int64_t end) {
      static_assert(kBlock % (kDraws * 4) == 0);
      Words random;
      for (int64_t first = begin; first < end; first += kDraws * 4) {
        draw(op, static_cast<uint64_t>(first) / 4, random);
        const int64_t count = smaller(kDraws * 4, end - first);
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
          const float unit =
              static_cast<float>(static_cast<int32_t>(random.words[i] >> 8)) * 5.9604644775390625e-8f;
          y[first + i] = narrow<T>(unit >= rate ? widen(x[first + i]) * scale : 0.0f);
        }
      }
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
