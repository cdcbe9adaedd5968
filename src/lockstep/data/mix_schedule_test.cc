#include "lockstep/data/mix_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep::data {
namespace {

// Over every beginning, counts are within 1 of the shares; a place's number is what was counted.
void check(const MixSchedule& schedule, size_t sources, int64_t positions) {
  std::vector<int64_t> seen(sources, 0);
  for (int64_t position = 0; position < positions; ++position) {
    const MixSchedule::Place place = schedule.at(position);
    ASSERT_EQ(place.before, seen[place.source]) << position;
    ++seen[place.source];
    for (size_t i = 0; i < sources; ++i) {
      const double expected = schedule.share(i) * static_cast<double>(position + 1);
      ASSERT_LT(std::abs(static_cast<double>(seen[i]) - expected), 1 + 1e-6)
          << "source " << i << " at " << position;
    }
    if (position % 97 == 0) {
      ASSERT_EQ(schedule.counts(position + 1), seen);
    }
  }
}

TEST(MixSchedule, CountsStayWithinOneOfTheShares) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    std::vector<MixShare> shares(1 + random() % 12);
    for (MixShare& share : shares) {
      const double draw = std::uniform_real_distribution(0.0, 1.0)(random);
      share.weight = round % 3 == 0   ? 1 + static_cast<double>(random() % 20)
                     : round % 3 == 1 ? 1e-4 + draw
                                      : std::pow(draw, 8) + 1e-5;
    }
    check(MixSchedule(shares), shares.size(), 4000);
  }
}

TEST(MixSchedule, SharesAreTheFractionsThatWereWritten) {
  const MixSchedule schedule(std::vector<MixShare>{{0.7}, {0.2}, {0.1}});
  EXPECT_EQ(schedule.counts(10), (std::vector<int64_t>{7, 2, 1}));
  EXPECT_EQ(schedule.counts(10'000'000'000),
            (std::vector<int64_t>{7'000'000'000, 2'000'000'000, 1'000'000'000}));
  EXPECT_EQ(schedule.at(10'000'000'000).before,
            schedule.counts(10'000'000'000)[schedule.at(10'000'000'000).source]);
  EXPECT_EQ(schedule.length(), INT64_MAX);
  EXPECT_NEAR(MixSchedule(std::vector<MixShare>{{M_PI}, {M_E}}).share(0), M_PI / (M_PI + M_E), 2e-6);
  EXPECT_EQ(MixSchedule(std::vector<MixShare>{{3.0}}).counts(5), (std::vector<int64_t>{5}));
}

// Which sample stands where is part of a run's bits: computed apart, earliest deadline first, and of equal
// ones the source that is named first.
TEST(MixSchedule, TheOrderIsPinned) {
  struct Row {
    std::vector<MixShare> shares;
    std::vector<size_t> order;
  };
  for (const Row& row : {Row{{{1}, {1}}, {0, 1}}, Row{{{1}, {1}, {1}}, {0, 1, 2}},
                         Row{{{0.7}, {0.2}, {0.1}}, {0, 0, 0, 1, 0, 0, 1, 0, 0, 2}},
                         Row{{{3}, {3}, {2}}, {0, 1, 2, 0, 1, 0, 1, 2}},
                         Row{{{5}, {5}, {3}, {1}}, {0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 2, 0, 1, 3}}}) {
    const MixSchedule schedule(row.shares);
    std::vector<size_t> order;
    for (size_t position = 0; position < row.order.size(); ++position)
      order.push_back(schedule.at(static_cast<int64_t>(position)).source);
    EXPECT_EQ(order, row.order) << row.shares.size() << " sources";
  }
}

// As one of no epochs: its share goes to the others from the beginning.
TEST(MixSchedule, ASourceOfNothingIsLeftOut) {
  const MixSchedule schedule(std::vector<MixShare>{{0.5, 0}, {0.25}, {0.25}});
  EXPECT_EQ(schedule.counts(100), (std::vector<int64_t>{0, 50, 50}));
}

TEST(MixSchedule, ASourceLeavesAtItsLimit) {
  const MixSchedule schedule(std::vector<MixShare>{{0.5, 100}, {0.25}, {0.25, 30}});
  std::vector<int64_t> seen(3, 0);
  for (int64_t position = 0; position < 2000; ++position) {
    const MixSchedule::Place place = schedule.at(position);
    ASSERT_EQ(place.before, seen[place.source]) << position;
    ++seen[place.source];
    ASSERT_EQ(schedule.counts(position + 1), seen) << position;
  }
  EXPECT_EQ(seen[0], 100);
  EXPECT_EQ(seen[2], 30);
  EXPECT_EQ(seen[1], 1870);
  EXPECT_EQ(schedule.length(), INT64_MAX);
}

TEST(MixSchedule, EndsWhereEverySourceHasALimit) {
  const MixSchedule schedule(std::vector<MixShare>{{3, 7}, {2, 0}, {1, 5}});
  EXPECT_EQ(schedule.length(), 12);
  EXPECT_EQ(schedule.counts(12), (std::vector<int64_t>{7, 0, 5}));
  EXPECT_EQ(schedule.counts(1000), (std::vector<int64_t>{7, 0, 5}));
  EXPECT_EQ(schedule.at(12).source, schedule.at(0).source);  // read ahead, and never used
}

}  // namespace
}  // namespace lockstep::data
