// base::philox for a run of counters at once. One round over the whole run after another is a plain loop
// that vectorises, which ten rounds for one counter after another are not.
#pragma once

#include "lockstep/kernels/vector_math.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

constexpr int64_t kDraws = 64;  // counters in a run; the four words of all of them are 1 KiB

struct Draws {
  alignas(64) uint32_t x[kDraws], y[kDraws], z[kDraws], w[kDraws];
};

// Words of philox(key, first + i, high) for i in [0, kDraws).
LS_INLINE void draw(uint64_t key, uint64_t first, uint64_t high, Draws& out) {
  for (int64_t i = 0; i < kDraws; ++i) {
    const uint64_t low = first + static_cast<uint64_t>(i);
    out.x[i] = static_cast<uint32_t>(low);
    out.y[i] = static_cast<uint32_t>(low >> 32);
    out.z[i] = static_cast<uint32_t>(high);
    out.w[i] = static_cast<uint32_t>(high >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
#pragma omp simd
    for (int64_t i = 0; i < kDraws; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * out.x[i], p1 = uint64_t{0xCD9E8D57u} * out.z[i];
      out.x[i] = static_cast<uint32_t>(p1 >> 32) ^ out.y[i] ^ k0;
      out.z[i] = static_cast<uint32_t>(p0 >> 32) ^ out.w[i] ^ k1;
      out.y[i] = static_cast<uint32_t>(p1);
      out.w[i] = static_cast<uint32_t>(p0);
    }
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
