#include "lockstep/base/patience.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

using std::chrono::seconds;

// Seconds at which progress comes; when the patience of 10 s ends.
struct Row {
  std::vector<int> changes;
  int ends;
};

TEST(Patience, FollowsProgress) {
  const std::vector<Row> rows = {{{}, 10},
                                 {{9}, 9 + 90},
                                 {{5, 14, 23}, 23 + 90},  // nine seconds apart at most: ten times that
                                 {{1, 2, 3, 4}, 14},
                                 {{0, 0, 0}, 10},
                                 {{8, 9}, 9 + 80},
                                 {{11}, 10}};  // too late
  for (const Row& row : rows) {
    const Patience::Clock::time_point begin{};
    Patience patience(seconds(10), begin);
    int at = 0;
    for (;; ++at) {
      int64_t progress = 0;
      for (const int change : row.changes) progress += change <= at;
      if (!patience.lasts(progress, begin + seconds(at))) break;
      ASSERT_LT(at, 1000);
    }
    EXPECT_EQ(at, row.ends);
  }
}

}  // namespace
}  // namespace lockstep::base
