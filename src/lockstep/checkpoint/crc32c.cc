#include "lockstep/checkpoint/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lockstep::checkpoint {
namespace {

// Polynomials over GF(2) with the coefficient of x^0 in the highest bit.
constexpr uint32_t kPolynomial = 0x82F63B78;
constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// x^(8 * 2^k) for each k.
constexpr std::array<uint32_t, 60> kPowers = [] {
  std::array<uint32_t, 60> powers{};
  powers[0] = kOne >> 8;
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = times(powers[k - 1], powers[k - 1]);
  return powers;
}();

// [k][b]: remainder of byte b followed by k zero bytes.
constexpr std::array<std::array<uint32_t, 256>, 8> kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b)
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 255];
  }
  return tables;
}();

uint64_t word_at(const std::byte* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t one_stream(const std::byte* at, size_t size, uint32_t before) {
  uint64_t crc = before;
  for (; size >= 8; at += 8, size -= 8) crc = _mm_crc32_u64(crc, word_at(at));
  for (; size > 0; ++at, --size)
    crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<unsigned char>(*at));
  return static_cast<uint32_t>(crc);
}

// The instruction answers after three cycles but takes a new word each: three thirds at once.
__attribute__((target("sse4.2"))) uint32_t three_streams(const std::byte* at, size_t size, uint32_t before) {
  constexpr size_t kWorthIt = 16'384;
  if (size < kWorthIt) return one_stream(at, size, before);
  const size_t third = size / 24 * 8;
  uint64_t a = before, b = 0, c = 0;
  for (size_t k = 0; k < third; k += 8) {
    a = _mm_crc32_u64(a, word_at(at + k));
    b = _mm_crc32_u64(b, word_at(at + third + k));
    c = _mm_crc32_u64(c, word_at(at + 2 * third + k));
  }
  const auto zeros = static_cast<int64_t>(third);
  const uint32_t ab = crc_after_zeros(static_cast<uint32_t>(a), zeros) ^ static_cast<uint32_t>(b);
  const uint32_t abc = crc_after_zeros(ab, zeros) ^ static_cast<uint32_t>(c);
  return one_stream(at + 3 * third, size - 3 * third, abc);
}
#endif

}  // namespace

uint32_t crc_remainder_portable(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = before;
  const std::byte* at = bytes.data();
  size_t size = bytes.size();
  for (; size >= 8; at += 8, size -= 8) {
    const uint64_t word = word_at(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 255];
  }
  for (; size > 0; ++at, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(*at)) & 255];
  return crc;
}

uint32_t crc_remainder(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return three_streams(bytes.data(), bytes.size(), before);
#endif
  return crc_remainder_portable(bytes, before);
}

uint32_t crc_after_zeros(uint32_t remainder, int64_t zeros) {
  for (size_t k = 0; zeros != 0; ++k, zeros >>= 1) {
    if ((zeros & 1) != 0) remainder = times(kPowers[k], remainder);
  }
  return remainder;
}

uint32_t crc_of_remainder(uint32_t remainder, int64_t size) {
  return remainder ^ ~crc_after_zeros(~uint32_t{0}, size);
}

uint32_t crc32c(std::span<const std::byte> bytes) { return ~crc_remainder(bytes, ~uint32_t{0}); }

}  // namespace lockstep::checkpoint
