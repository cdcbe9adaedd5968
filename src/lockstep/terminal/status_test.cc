#include "lockstep/terminal/status.h"

#include <gtest/gtest.h>

#include "lockstep/base/text.h"

namespace lockstep::terminal {
namespace {

TEST(StatusLine, LeavesWholePartsOutTheLeastNeededFirst) {
  const std::vector<StatusPart> parts = {
      {"step 12/400"}, {"loss 2.1234"}, {"(floor 1.9725)", 3}, {"19.5 k tokens/s", 2}, {"ETA 12 s", 1}};
  EXPECT_EQ(status_line(parts, 200), "step 12/400  loss 2.1234  (floor 1.9725)  19.5 k tokens/s  ETA 12 s");
  EXPECT_EQ(status_line(parts, 60), "step 12/400  loss 2.1234  19.5 k tokens/s  ETA 12 s");
  EXPECT_EQ(status_line(parts, 40), "step 12/400  loss 2.1234  ETA 12 s");
  EXPECT_EQ(status_line(parts, 10), "step 12/400  loss 2.1234");  // these stay
  EXPECT_EQ(status_line({}, 10), "");
}

TEST(StepClock, TheFirstStepIsNotLikeTheOthers) {
  StepClock clock;
  clock.stepped(1000);
  EXPECT_EQ(clock.eta(100), "");  // not known yet
  clock.stepped(100);
  EXPECT_EQ(clock.eta(100), "10 s");
  clock.stepped(100);
  EXPECT_EQ(clock.eta(50), "5 s");
}

TEST(StepClock, NeverPrintsMicroseconds) {
  StepClock clock;
  for (int i = 0; i < 3; ++i) clock.stepped(0.5);
  EXPECT_EQ(clock.eta(0), "");  // the run is over
  EXPECT_EQ(clock.eta(1), "<1 s");
  EXPECT_EQ(clock.eta(4000), "2 s");
  EXPECT_EQ(clock.eta(1'000'000), "8 m 20 s");
}

TEST(StepClock, FollowsStepsThatBecomeSlower) {
  StepClock clock;
  for (int i = 0; i < 100; ++i) clock.stepped(10);
  for (int i = 0; i < 200; ++i) clock.stepped(20);
  EXPECT_NEAR(clock.usual_ms(), 20, 0.1);
}

}  // namespace
}  // namespace lockstep::terminal
