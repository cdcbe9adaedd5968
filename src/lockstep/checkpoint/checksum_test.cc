#include "lockstep/checkpoint/checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lockstep::checkpoint {
namespace {

TEST(Checksum, TellsLengthsAndPlacesApart) {
  constexpr size_t kPiece = Checksum::kPiece;
  std::set<std::string> seen;
  size_t files = 0;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{2}, kPiece - 1, kPiece, kPiece + 1, 2 * kPiece}) {
    std::vector<std::byte> bytes(size);
    seen.insert(checksum_of(bytes));
    ++files;
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      if (size < 3) continue;
      bytes[at] = std::byte{1};
      seen.insert(checksum_of(bytes));
      bytes[at] = std::byte{0};
      ++files;
    }
  }
  EXPECT_EQ(seen.size(), files);  // no two alike
}

TEST(Checksum, IsTheSameFromVersionToVersion) {
  // Written into manifests: a change here makes every checkpoint look damaged.
  EXPECT_EQ(checksum_of({}), "0000000000000000");
  const std::vector<std::byte> bytes(1000, std::byte{7});
  EXPECT_EQ(checksum_of(bytes), "059627e66a27430a");
}

}  // namespace
}  // namespace lockstep::checkpoint
