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
