// The word mixing of the parameter hash, the same on every device.
//
// A chunk's hash is two sums, modulo 2^64, of hash_word over its fp32 words. Addition commutes, so
// threads may take the words in any order; the index makes the sum notice words that change places.
#pragma once

#include <cstdint>

#include "lockstep/base/philox.h"

namespace lockstep::kernels {

constexpr uint64_t kHashSalts[2] = {0x243F6A8885A308D3ull, 0x13198A2E03707344ull};  // digits of pi

// `index` counts within the chunk, so that a hash does not depend on where a shard keeps it.
LS_HOST_DEVICE inline uint64_t hash_word(uint32_t word, uint64_t index, uint64_t salt) {
  return base::mix64(word ^ base::mix64(index + salt));
}

}  // namespace lockstep::kernels
