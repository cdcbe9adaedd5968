#include "lockstep/run/shared/budget.h"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::run {
namespace {

struct Heard : Observer {
  std::vector<std::string> events;
  void event(const std::string& name, const std::string& why, int64_t) override {
    events.push_back(name + " " + why);
  }
};

// A dollar a second.
const BudgetTerms kTerms{
    .usd = 100, .usd_per_hour = 3600, .price_from = "run.price", .stop_seconds = 4, .steps_to_stop = 2};

TEST(Budget, StopsWhileStoppingIsStillPaidFor) {
  const Budget budget(kTerms, {});
  EXPECT_FALSE(budget.is_spent(85, 3));  // 85 + 4 + 2 x 3
  EXPECT_TRUE(budget.is_spent(90, 3));
  EXPECT_FALSE(budget.is_spent(95.9, 0));
  EXPECT_TRUE(budget.is_spent(96, 0));
}

TEST(Budget, EarlierProcessesCount) {
  const Budget budget(kTerms, {.seconds = 60, .usd = 60, .processes = 2});
  EXPECT_TRUE(budget.is_spent(36, 0));
  EXPECT_FALSE(budget.is_spent(35, 0));
  const Spending all = budget.spending(10);
  EXPECT_EQ(all.usd, 70);
  EXPECT_EQ(all.seconds, 70);
  EXPECT_EQ(all.processes, 3);
}

TEST(Budget, TellsOfHalfAndNineTenthsOnce) {
  Heard heard;
  Budget budget(kTerms, {});
  for (const double alive : {10.0, 49.0, 50.0, 51.0, 89.0, 90.0, 95.0}) budget.tell(alive, 1, heard);
  ASSERT_EQ(heard.events.size(), 2u);
  EXPECT_EQ(heard.events[0].substr(0, 31), "budget 50 %: $50.00 of run.budg");
  EXPECT_EQ(heard.events[1].substr(0, 12), "budget 90 %:");
  // One that goes on does not repeat what was told.
  Heard later;
  Budget again(kTerms, {.seconds = 60, .usd = 60, .processes = 1});
  for (const double alive : {1.0, 31.0}) again.tell(alive, 1, later);
  ASSERT_EQ(later.events.size(), 1u);
  EXPECT_EQ(later.events[0].substr(0, 12), "budget 90 %:");
}

TEST(Budget, SpendingIsKeptAndADamagedFileIsNotForgotten) {
  base::TemporaryFolder folder;
  EXPECT_EQ(read_spending(folder.path()).usd, 0);
  write_spending(folder.path(), {.seconds = 12.5, .usd = 3.25, .processes = 2});
  const Spending read = read_spending(folder.path());
  EXPECT_EQ(read.seconds, 12.5);
  EXPECT_EQ(read.usd, 3.25);
  EXPECT_EQ(read.processes, 2);
  EXPECT_GT(read.updated_ms, 0);
  for (const char* text : {"", "{", "[]", "{\"usd\": -1}", "{\"usd\": 1, \"seconds\": \"x\"}"}) {
    std::ofstream(folder.path() + "/spending.json") << text;
    EXPECT_THROW(read_spending(folder.path()), base::IoError) << text;
  }
}

}  // namespace
}  // namespace lockstep::run
