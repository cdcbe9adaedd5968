#include "lockstep/base/histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::base {
namespace {

Histogram of(const std::vector<float>& values, float factor = 1) {
  Histogram all;
  all.add(values.data(), static_cast<int64_t>(values.size()), factor);
  return all;
}

TEST(Histogram, TwoBinsToAnOctaveForBothSigns) {
  const Histogram all = of({1, 1.25F, 1.5F, 2, -1, 0.5F});
  EXPECT_EQ(all.count(), 6);
  EXPECT_EQ(all.edges().front(), -1.5);
  EXPECT_EQ(all.edges().back(), 3);
  EXPECT_EQ(all.edges().size(), all.counts().size() + 1);
  int64_t one = 0, above = 0;
  for (size_t i = 0; i < all.counts().size(); ++i) {
    if (all.edges()[i] == 1) one = all.counts()[i];
    if (all.edges()[i] == 1.5) above = all.counts()[i];
  }
  EXPECT_EQ(one, 2);    // 1 and 1.25
  EXPECT_EQ(above, 1);  // 1.5
}

TEST(Histogram, ExtremesAreThoseOfFiniteValuesAfterTheFactor) {
  const float infinite = std::numeric_limits<float>::infinity();
  const Histogram all = of({4, -8, infinite, std::nanf("")}, 0.5F);
  EXPECT_EQ(all.smallest(), -4);
  EXPECT_EQ(all.largest(), 2);
  EXPECT_EQ(all.count(), 2);
  EXPECT_EQ(all.not_finite(), 2);
}

TEST(Histogram, HugeAndTinyValuesAreInTheOutermostBins) {
  EXPECT_EQ(of({1e30F}).edges(), of({3e38F}).edges());
  EXPECT_EQ(of({0}).edges(), of({1e-30F}).edges());
  EXPECT_TRUE(Histogram().edges().empty());
  EXPECT_TRUE(Histogram().counts().empty());
}

// In any order, and with parts that have nothing: extremes that are no values of theirs do not count.
TEST(Histogram, PartsAddUpToTheWhole) {
  const Histogram whole = of({3, 5, -0.25F, 7});
  for (const bool empty_first : {true, false}) {
    Histogram sum;
    if (!empty_first) sum.add(of({3, 5}));
    sum.add(Histogram());
    if (empty_first) sum.add(of({3, 5}));
    sum.add(of({-0.25F, 7}));
    EXPECT_EQ(sum.counts(), whole.counts());
    EXPECT_EQ(sum.smallest(), -0.25F);
    EXPECT_EQ(sum.largest(), 7);
  }
  Histogram positive;
  positive.add(of({3, 5}));
  EXPECT_EQ(positive.smallest(), 3) << "not the zero that it began with";
}

}  // namespace
}  // namespace lockstep::base
