#include "lockstep/device/waiting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace lockstep::device {
namespace {

constexpr int64_t kJobNs = 100'000;

size_t index_of(const WaitingChoice& choice) { return static_cast<size_t>(&choice.now() - kWaitings.data()); }

// How many of `jobs` were run in each way, where a job takes so many times its best in each.
std::array<int, 3> run(WaitingChoice& choice, int jobs, const std::array<double, 3>& slowdown) {
  std::array<int, 3> counts{};
  static const int functions[3] = {};
  for (int k = 0; k < jobs; ++k) {
    const size_t way = index_of(choice);
    ++counts[way];
    const double size = 1 + k % 3;  // several kinds of jobs, each with its own best time
    choice.took(&functions[k % 3], 8, static_cast<int64_t>(size * kJobNs * slowdown[way]));
  }
  return counts;
}

TEST(WaitingChoice, StaysWhereNothingIsSlow) {
  WaitingChoice choice;
  EXPECT_EQ(run(choice, 10'000, {1.0, 1.2, 1.0}), (std::array<int, 3>{10'000, 0, 0}));
}

TEST(WaitingChoice, FindsTheFastestAndKeepsIt) {
  for (const std::array<double, 3>& slowdown :
       {std::array{2.5, 1.5, 3.0}, std::array{2.5, 3.5, 1.5}, std::array{1.5, 2.5, 3.0}}) {
    WaitingChoice choice;
    run(choice, 1000, {1, 1, 1});  // the best times, before others came
    const std::array<int, 3> counts = run(choice, 40'000, slowdown);
    const size_t fastest =
        static_cast<size_t>(std::min_element(slowdown.begin(), slowdown.end()) - slowdown.begin());
    EXPECT_GT(counts[fastest], 36'000) << "way " << fastest;
  }
}

// What was slow once is tried again after a while: the others may have changed.
TEST(WaitingChoice, FindsWhatHasBecomeFaster) {
  WaitingChoice choice;
  run(choice, 1000, {1, 1, 1});
  run(choice, 20'000, {2.5, 1.5, 3.0});
  EXPECT_GT(run(choice, 40'000, {2.5, 2.4, 1.4})[2], 34'000);
}

TEST(WaitingChoice, GoesBackWhenTheOthersAreGone) {
  WaitingChoice choice;
  run(choice, 1000, {1, 1, 1});
  run(choice, 10'000, {2.5, 1.5, 3.0});
  run(choice, 2000, {1.0, 1.2, 1.0});
  EXPECT_EQ(index_of(choice), 0u);
}

}  // namespace
}  // namespace lockstep::device
