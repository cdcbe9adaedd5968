#include "lockstep/base/hash.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "lockstep/base/philox.h"

namespace lockstep::base {
namespace {

static_assert(std::endian::native == std::endian::little, "hashes are of little-endian words");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87ull;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Full;
constexpr size_t kStripe = 32;

uint64_t word_at(const std::byte* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint64_t absorb(uint64_t lane, uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

}  // namespace

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed) {
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  uint64_t lanes[4] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
  for (; left >= kStripe; at += kStripe, left -= kStripe) {
    for (int i = 0; i < 4; ++i) lanes[i] = absorb(lanes[i], word_at(at + 8 * i));
  }
  uint64_t hash = mix64(seed + bytes.size() * kPrime1);
  for (const uint64_t lane : lanes) hash = hash_combine(hash, lane);
  for (; left >= 8; at += 8, left -= 8) hash = hash_combine(hash, word_at(at));
  // The length is already in the hash, so zero padding of the last word is no ambiguity.
  uint64_t last = 0;
  if (left > 0) std::memcpy(&last, at, left);
  return hash_combine(hash, last);
}

uint64_t hash_text(std::string_view text, uint64_t seed) {
  return hash_bytes(std::as_bytes(std::span(text)), seed);
}

uint64_t hash_combine(uint64_t hash, uint64_t element) {
  return mix64(std::rotl(hash, 23) * kPrime2 + element + kPrime1);
}

std::string hex64(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace lockstep::base
