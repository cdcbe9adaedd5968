#include "lockstep/data/permutation.h"

#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"

namespace lockstep::data {
namespace {

constexpr int kRounds = 8;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

// Bits of half a block, so that 4^half_bits is the smallest power of four that holds `size` values.
int half_bits_for(uint64_t size) {
  int bits = 0;
  while (bits < 32 && (uint64_t{1} << (2 * bits)) < size) ++bits;
  return bits;
}

// A balanced Feistel network is a bijection of [0, 4^half_bits) whatever its round function is.
uint64_t feistel(uint64_t value, uint64_t key, int half_bits) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    key += kGolden;
    const uint64_t mixed = (left ^ base::mix64(key + right)) & mask;
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

}  // namespace

KeyedPermutation::KeyedPermutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size_(size),
      key_(base::mix64(base::mix64(seed + kGolden) + kGolden * (epoch + 1))),
      half_bits_(half_bits_for(size)) {
  LS_ASSERT(size > 0);
}

uint64_t KeyedPermutation::operator()(uint64_t index) const {
  LS_ASSERT(index < size_);
  // Cycle-walking: follow the cycle until it is back below size. The block holds less than 4 * size
  // values, so fewer than four turns are expected.
  uint64_t value = index;
  do value = feistel(value, key_, half_bits_);
  while (value >= size_);
  return value;
}

}  // namespace lockstep::data
