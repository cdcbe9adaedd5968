// Counter-based random numbers (Philox 4x32-10): a function of key and counter, no state.
//
// Randomness in Lockstep is keyed by (seed, step, slice, site, element), never by rank or call order,
// so any rank can draw any number. The same header serves the CPU and CUDA kernels, bit for bit.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define LS_HOST_DEVICE __host__ __device__
#else
#define LS_HOST_DEVICE
#endif

namespace lockstep::base {

struct Random4 {
  uint32_t x, y, z, w;
};

LS_HOST_DEVICE inline Random4 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// SplitMix64's finaliser: a bijection of 64-bit words that leaves no pattern.
LS_HOST_DEVICE inline uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  x ^= x >> 31;
  return x;
}

// [0, 1) with 24 bits: exact in fp32.
LS_HOST_DEVICE inline float unit_float(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 5.9604644775390625e-8f;
}

// The dropout draw for four neighbouring elements 4q .. 4q+3 of one (slice, site) in one step.
LS_HOST_DEVICE inline Random4 site_random(uint64_t seed, uint64_t step, uint32_t slice, uint32_t site,
                                          uint64_t q) {
  return philox(mix64(seed + 0x9E3779B97F4A7C15ull * (step + 1)), q,
                (static_cast<uint64_t>(slice) << 32) | site);
}

}  // namespace lockstep::base
