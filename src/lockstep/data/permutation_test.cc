#include "lockstep/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

TEST(KeyedPermutation, IsABijectionOfEverySizeTo4096) {
  for (const uint64_t seed : {0ull, 1ull, 0xFFFFFFFFFFFFFFFFull}) {
    std::vector<uint32_t> last_seen(4096, 0);
    for (uint32_t size = 1; size <= 4096; ++size) {
      const KeyedPermutation permute(size, seed, size % 3);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t image = permute(i);
        ASSERT_LT(image, size);
        ASSERT_NE(last_seen[image], size) << image << " twice, size " << size << ", seed " << seed;
        last_seen[image] = size;
      }
    }
  }
}

TEST(KeyedPermutation, StaysInRangeForHugeSizes) {
  for (const uint64_t size :
       {(uint64_t{1} << 40) + 1, (uint64_t{1} << 62) + 5, std::numeric_limits<uint64_t>::max()}) {
    const KeyedPermutation permute(size, 3, 9);
    std::set<uint64_t> images;
    for (uint64_t i = 0; i < 1000; ++i) images.insert(permute(size - 1 - i));
    EXPECT_EQ(images.size(), 1000u);
    EXPECT_LT(*images.rbegin(), size);
  }
}

// Numbers of another implementation. An order that changes breaks every run that is resumed, and is a
// permutation still; powers of four and their neighbours lie at the bounds of the network's block.
TEST(KeyedPermutation, IsTheOneThatRunsWereStartedWith) {
  struct Row {
    uint64_t size, seed, epoch;
    std::vector<uint64_t> images;  // of 0, 1, 2 and the last
  };
  const Row rows[] = {
      {1ull, 1, 0, {0ull}},
      {2ull, 1, 0, {0ull, 1ull}},
      {3ull, 7, 2, {0ull, 1ull, 2ull}},
      {4ull, 1, 0, {2ull, 1ull, 3ull, 0ull}},
      {5ull, 1, 0, {3ull, 1ull, 4ull, 2ull}},
      {15ull, 1, 0, {3ull, 8ull, 9ull, 7ull}},
      {16ull, 1, 0, {3ull, 8ull, 9ull, 6ull}},
      {17ull, 1, 0, {11ull, 2ull, 13ull, 12ull}},
      {64ull, 3, 1, {57ull, 43ull, 19ull, 48ull}},
      {65ull, 3, 1, {0ull, 19ull, 4ull, 47ull}},
      {256ull, 42, 5, {84ull, 16ull, 225ull, 56ull}},
      {1000ull, 1, 0, {523ull, 760ull, 188ull, 852ull}},
      {1024ull, 1, 0, {523ull, 760ull, 188ull, 111ull}},
      {1025ull, 1, 0, {25ull, 73ull, 916ull, 511ull}},
      {1048576ull, 1, 0, {301315ull, 533521ull, 466514ull, 714195ull}},
      {1048577ull, 1, 0, {63473ull, 163654ull, 873963ull, 938209ull}},
      {4294967296ull, 1, 3, {653694333ull, 4187381369ull, 2852384123ull, 1832819767ull}},
      {4611686018427387904ull,
       2,
       1,
       {2179727320987576047ull, 3214606826863478652ull, 4100681223964031722ull, 582311587956293081ull}},
      {18446744073709551615ull,
       5,
       0,
       {5237636188930792025ull, 5640981307308528040ull, 15334152198850506505ull, 16839038122267640733ull}},
  };
  for (const Row& row : rows) {
    const KeyedPermutation permute(row.size, row.seed, row.epoch);
    for (size_t i = 0; i < row.images.size(); ++i)
      EXPECT_EQ(permute(i < 3 ? i : row.size - 1), row.images[i]) << row.size << " " << i;
  }
}

TEST(KeyedPermutation, SeedsAndEpochsGiveOtherOrders) {
  const uint64_t size = 1000;
  const auto agreements = [&](const KeyedPermutation& a, const KeyedPermutation& b) {
    int count = 0;
    for (uint64_t i = 0; i < size; ++i) count += a(i) == b(i);
    return count;
  };
  const KeyedPermutation permute(size, 1, 0);
  EXPECT_EQ(agreements(permute, KeyedPermutation(size, 1, 0)), 1000);
  // Two random orders agree at one place on average; 12 has probability below 1e-9.
  EXPECT_LT(agreements(permute, KeyedPermutation(size, 1, 1)), 12);
  EXPECT_LT(agreements(permute, KeyedPermutation(size, 2, 0)), 12);
  EXPECT_LT(agreements(KeyedPermutation(size, 2, 0), KeyedPermutation(size, 1, 1)), 12);
}

// Where each of 16 positions lands, over many epochs: a chi-square test with 225 degrees of freedom.
TEST(KeyedPermutation, EveryPositionLandsEverywhereEquallyOften) {
  constexpr int kSize = 16, kEpochs = 16000;
  double chi_square = 0;
  std::vector<int> counts(kSize * kSize, 0);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const KeyedPermutation permute(kSize, 42, epoch);
    for (int i = 0; i < kSize; ++i) ++counts[i * kSize + static_cast<int>(permute(i))];
  }
  const double expected = static_cast<double>(kEpochs) / kSize;
  for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 225 + 5 * std::sqrt(2 * 225.0));
}

TEST(KeyedPermutation, NeighboursDoNotStayNeighbours) {
  const uint64_t size = 100000;
  const KeyedPermutation permute(size, 5, 0);
  int near = 0;
  for (uint64_t i = 0; i + 1 < size; ++i) {
    const double distance = std::abs(static_cast<double>(permute(i)) - static_cast<double>(permute(i + 1)));
    near += distance < 0.01 * static_cast<double>(size);
  }
  EXPECT_NEAR(near / static_cast<double>(size), 0.02, 0.003);
}

TEST(KeyedPermutation, RefusesWhatIsOutside) {
  EXPECT_THROW(KeyedPermutation(0, 1, 0), base::Bug);
  EXPECT_THROW(KeyedPermutation(5, 1, 0)(5), base::Bug);
}

}  // namespace
}  // namespace lockstep::data
