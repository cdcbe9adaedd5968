#include "lockstep/plan/money.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

TEST(Money, WithoutPreemptionsSpotIsItsPrice) {
  const Spot spot =
      expect_spot({.hours = 10, .preemptions_per_day = 0, .usd_per_hour = 2, .on_demand_usd_per_hour = 5});
  EXPECT_DOUBLE_EQ(spot.usd, 20);
  EXPECT_DOUBLE_EQ(spot.saving(), 30);
  EXPECT_DOUBLE_EQ(spot.hours, 10);
  EXPECT_DOUBLE_EQ(spot.preemptions, 0);
}

// Uninterrupted, a run saves as its recipe says; interrupted, as often as loses least.
TEST(Money, SavesOfItsOwn) {
  SpotQuestion q{.hours = 10,
                 .save_hours = 2,
                 .preemptions_per_day = 0,
                 .save_seconds = 4,
                 .usd_per_hour = 2,
                 .on_demand_usd_per_hour = 5};
  EXPECT_DOUBLE_EQ(expect_spot(q).hours, 12);
  EXPECT_DOUBLE_EQ(expect_spot(q).usd, 24);
  EXPECT_DOUBLE_EQ(expect_spot(q).on_demand_usd, 60);
  q.preemptions_per_day = 1;
  const Spot spot = expect_spot(q);
  EXPECT_DOUBLE_EQ(spot.on_demand_usd, 60);
  q.save_hours = 0;
  EXPECT_DOUBLE_EQ(expect_spot(q).hours, spot.hours);
}

// One machine, once a day: saves of 4.32 s every sqrt(2 x 4.32 x 86400) = 864 s, half of that and a restart
// lost.
TEST(Money, ExpectedLossByHand) {
  const Spot spot = expect_spot({.hours = 240,
                                 .preemptions_per_day = 1,
                                 .save_seconds = 4.32,
                                 .restart_seconds = 432,
                                 .usd_per_hour = 1,
                                 .on_demand_usd_per_hour = 3});
  EXPECT_NEAR(spot.save_every_seconds, 864, 1e-6);
  const double hours = 240 * 1.005 / (1 - 864.0 / 86400);
  EXPECT_NEAR(spot.hours, hours, 1e-9);
  EXPECT_NEAR(spot.preemptions, hours / 24, 1e-9);
  EXPECT_NEAR(spot.usd, hours, 1e-6);
  EXPECT_LT(spot.low_usd, spot.usd);
  EXPECT_GT(spot.high_usd, spot.usd);
}

// One that goes stops all.
TEST(Money, MoreMachinesAreInterruptedMoreOften) {
  const SpotQuestion one{.hours = 100, .preemptions_per_day = 0.5, .usd_per_hour = 1};
  SpotQuestion many = one;
  many.machines = 16;
  EXPECT_GT(expect_spot(many).preemptions, 16 * expect_spot(one).preemptions);
  EXPECT_NEAR(expect_spot(many).save_every_seconds, expect_spot(one).save_every_seconds / 4, 1e-9);
  many.machines = 100000;  // never done, and never infinite
  EXPECT_LT(expect_spot(many).hours, 1e6);
}

TEST(Money, CommitmentsBreakEven) {
  EXPECT_DOUBLE_EQ(break_even_hours(10, 5, kHoursOfYear), kHoursOfYear / 2);
  EXPECT_DOUBLE_EQ(break_even_hours(0, 5, kHoursOfYear), 0);
}

TEST(Money, SpotMachinesThatGoTooOftenNeverEnd) {
  const SpotQuestion often{.hours = 58, .machines = 8, .preemptions_per_day = 1000, .usd_per_hour = 155};
  EXPECT_FALSE(expect_spot(often).ends);
  EXPECT_EQ(expect_spot(often).usd, 0);
  // What is paid is what the hours cost, however often it is interrupted.
  for (const double times : {0.0, 0.1, 1.0, 10.0, 30.0}) {
    const Spot spot =
        expect_spot({.hours = 58, .machines = 8, .preemptions_per_day = times, .usd_per_hour = 155});
    ASSERT_TRUE(spot.ends) << times;
    EXPECT_NEAR(spot.usd / (155 * spot.hours), 1, 1e-9) << times;
    EXPECT_GE(spot.hours, 58) << times;
  }
}

}  // namespace
}  // namespace lockstep::plan
