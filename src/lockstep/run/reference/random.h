// The counter-based randomness of a run, written once more from its definition. For tests.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::reference {

// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k = {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};
  }
  return c;
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;  // 2^64 over the golden ratio

inline uint64_t split_mix(uint64_t x) {  // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// What dropout multiplies element `i` with: by word i % 4 of draw i / 4 of its slice and site in this step.
struct Mask {
  uint64_t seed, step;
  uint32_t slice, site;
  double rate;
  double factor(uint64_t i) const {
    const uint64_t key = split_mix(seed + kGolden * (step + 1)), q = i / 4;
    const auto words = philox({static_cast<uint32_t>(q), static_cast<uint32_t>(q >> 32), site, slice},
                              {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    const double uniform = static_cast<double>(words[i % 4] >> 8) / (1 << 24);
    return uniform >= static_cast<double>(static_cast<float>(rate)) ? 1 / (1 - rate) : 0;
  }
};

// Where sample `index` of an epoch comes from: eight rounds of a Feistel network over the smallest power of
// four that holds `size` numbers, again and again until the number is below `size`.
inline uint64_t permuted(uint64_t size, uint64_t seed, uint64_t epoch, uint64_t index) {
  uint64_t half = 1;
  while (half * half < size) half *= 2;
  const uint64_t first = split_mix(split_mix(seed + kGolden) + kGolden * (epoch + 1));
  do {
    uint64_t left = index / half, right = index % half;
    for (uint64_t round = 1; round <= 8; ++round) {
      const uint64_t mixed = (left ^ split_mix(first + kGolden * round + right)) % half;
      left = right, right = mixed;
    }
    index = left * half + right;
  } while (index >= size);
  return index;
}

}  // namespace lockstep::reference
