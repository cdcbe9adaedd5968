#include "lockstep/base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <vector>

namespace lockstep::base {
namespace {

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  return bytes;
}

// Run folders keep these hashes: a change of the function would make every old record look changed.
TEST(Hash, IsStable) {
  EXPECT_EQ(hex64(hash_text("")), "837eb73e3cf69899");
  EXPECT_EQ(hex64(hash_text("lockstep")), "cd8df99643d4b88b");
  EXPECT_EQ(hex64(hash_bytes(pattern(1000))), "ffebda3b8f201cf7");
}

TEST(Hash, EveryLengthDiffersEvenOfZeros) {
  std::set<uint64_t> seen;
  const std::vector<std::byte> zeros(300);
  for (size_t size = 0; size <= zeros.size(); ++size) seen.insert(hash_bytes(std::span(zeros).first(size)));
  EXPECT_EQ(seen.size(), zeros.size() + 1);
}

TEST(Hash, EveryBitReachesAboutHalfOfTheResult) {
  for (const size_t size : {1, 7, 8, 31, 32, 33, 100}) {
    std::vector<std::byte> bytes = pattern(size);
    const uint64_t before = hash_bytes(bytes);
    for (size_t bit = 0; bit < size * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      const int changed = std::popcount(before ^ hash_bytes(bytes));
      EXPECT_GE(changed, 12) << "bit " << bit << " of " << size << " bytes";
      EXPECT_LE(changed, 52) << "bit " << bit << " of " << size << " bytes";
      bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    }
  }
}

TEST(Hash, SeedAndOrderMatter) {
  EXPECT_NE(hash_text("a", 1), hash_text("a", 2));
  EXPECT_NE(hash_combine(hash_combine(0, 1), 2), hash_combine(hash_combine(0, 2), 1));
}

TEST(Hash, DoesNotDependOnAlignment) {
  const std::vector<std::byte> bytes = pattern(200);
  for (size_t shift = 1; shift < 9; ++shift) {
    std::vector<std::byte> moved(shift);
    moved.insert(moved.end(), bytes.begin(), bytes.end());
    EXPECT_EQ(hash_bytes(std::span(moved).subspan(shift)), hash_bytes(bytes));
  }
}

}  // namespace
}  // namespace lockstep::base
