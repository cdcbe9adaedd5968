#include "lockstep/checkpoint/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace lockstep::checkpoint {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, AgreesWithTheStandard) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAu);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62A8AB43u);  // RFC 3720, B.4
}

TEST(Crc32c, EveryWayGivesTheSame) {
  std::mt19937_64 random(1);
  std::string text(100'000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (const size_t size : {0ul, 1ul, 7ul, 8ul, 9ul, 4095ul, 16'384ul, 16'391ul, 99'999ul}) {
    for (const size_t begin : {0ul, 1ul}) {
      const auto bytes = bytes_of(text).subspan(begin, size);
      EXPECT_EQ(crc_remainder(bytes, 0x1234), crc_remainder_portable(bytes, 0x1234)) << size;
      EXPECT_EQ(crc_of_remainder(crc_remainder(bytes), static_cast<int64_t>(size)), crc32c(bytes)) << size;
      const size_t half = size / 3;
      EXPECT_EQ(crc_remainder(bytes.subspan(half), crc_remainder(bytes.first(half))), crc_remainder(bytes));
    }
  }
}

// Two ranks write every other run of a chunk: their remainders, zeros elsewhere, add up.
TEST(Crc32c, RemaindersOfDisjointRunsAddUp) {
  std::mt19937_64 random(2);
  std::string text(10'000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  uint32_t sum = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t size = std::min<size_t>(1 + random() % 700, text.size() - at);
    sum ^= crc_after_zeros(crc_remainder(bytes_of(text).subspan(at, size)),
                           static_cast<int64_t>(text.size() - at - size));
    at += size;
  }
  EXPECT_EQ(crc_of_remainder(sum, static_cast<int64_t>(text.size())), crc32c(bytes_of(text)));
}

}  // namespace
}  // namespace lockstep::checkpoint
