// `lockstep train` while nobody runs it: Ctrl-Z, a paused container, a suspended machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "lockstep/cli/train/background_training.h"

namespace lockstep::cli {
namespace {

using namespace std::chrono_literals;

// Ranks have sessions of their own, which a terminal's Ctrl-Z does not reach.
TEST(Pauses, CtrlZStopsTheRanksWithTheirLauncher) {
  const base::TemporaryFolder folder;
  Training training(folder.path(), "z", "run.steps=1000000 run.hang_timeout=2 --nproc 2");
  ASSERT_TRUE(training.reaches(20));
  const std::vector<pid_t> ranks = training.ranks();
  ASSERT_EQ(ranks.size(), 2u);
  training.signal(SIGTSTP);
  ASSERT_TRUE(training.until([&] {
    return Training::is_stopped(training.pid()) &&
           std::all_of(ranks.begin(), ranks.end(), Training::is_stopped);
  })) << "ranks train on without their launcher";
  const int64_t step = training.step();
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(training.step(), step);
  training.signal(SIGCONT);
  EXPECT_TRUE(training.reaches(step + 20));
  EXPECT_EQ(training.event("hang"), "");
  training.stop(SIGTERM);
  EXPECT_EQ(training.end().code, 75);
}

// What did not run while its launcher did not run either is no hang, for however long.
TEST(Pauses, AWholeRunThatWasPausedGoesOn) {
  const base::TemporaryFolder folder;
  Training training(folder.path(), "paused", "run.steps=1000000 run.hang_timeout=2 --nproc 2");
  ASSERT_TRUE(training.reaches(20));
  std::vector<pid_t> all = launch::descendants_of(training.pid());
  all.push_back(training.pid());
  for (const pid_t one : all) ::kill(one, SIGSTOP);
  std::this_thread::sleep_for(7s);
  std::reverse(all.begin(), all.end());  // the launcher sees ranks that are still stopped
  for (const pid_t one : all) {
    ::kill(one, SIGCONT);
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_TRUE(training.reaches(training.step() + 20));
  EXPECT_EQ(training.event("hang"), "");
  EXPECT_EQ(training.starts().size(), 1u);
  training.stop(SIGTERM);
  EXPECT_EQ(training.end().code, 75);
}

}  // namespace
}  // namespace lockstep::cli
