// Where time goes and what would help, from timelines that are written by hand.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/ring.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/see/advice.h"
#include "lockstep/see/pace.h"
#include "lockstep/see/process_now.h"
#include "lockstep/see/ranks_now.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::see {
namespace {

TimeSpan span(const char* name, double begin, double length) {
  return {.name = name, .step = 1, .begin = begin, .length = length};
}
LaneTimes lane(int rank, const char* name, std::vector<TimeSpan> spans) {
  return {.rank = rank, .name = name, .spans = std::move(spans)};
}
Timeline timeline(std::vector<LaneTimes> lanes) {
  return {.lanes = std::move(lanes), .first_step = 1, .last_step = 1, .problem = {}};
}

// A run that was killed stays dead when another process is given its number.
TEST(RanksNow, ANumberThatIsUsedAgainKeepsNoRunAlive) {
  const base::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() + "/trace");
  for (const std::string& path : {watch::phase_path(folder.path(), 0), watch::ring_path(folder.path(), 0)})
    base::RingWriter(path, {.rank = 0, .entries = 4});
  EXPECT_TRUE(lives_here(folder.path()));
  constexpr off_t kBirth = 40;  // base/ring_layout.h
  for (const std::string& path : {watch::phase_path(folder.path(), 0), watch::ring_path(folder.path(), 0)}) {
    const uint64_t later = base::birth_of(::getpid()).ticks + 1;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(kBirth).write(reinterpret_cast<const char*>(&later), sizeof(later));
  }
  EXPECT_FALSE(lives_here(folder.path()));
  RanksNow now(folder.path());
  for (const RankNow& rank : now.look()) EXPECT_FALSE(rank.alive);
}

TEST(StepTime, PartsAddUpAndNothingIsCountedTwice) {
  // 100 us: computes 0-40, 60-80; communicates 30-60, of it 10 hidden; loads 75-90, of it 10 alone; then
  // nothing.
  const StepTime time = step_time_of(
      timeline({lane(0, "compute",
                     {span("forward b0", 0, 20), span("backward_input b0", 20, 20), span("update", 60, 20)}),
                lane(0, "reduce", {span("reduce b0", 30, 30)}),
                lane(0, "waits in collectives", {span("all_reduce", 35, 25)}),
                lane(0, "host", {span("load s0", 75, 15), span("note", 99, 1)})}),
      0);
  EXPECT_NEAR(time.seconds, 100e-6, 1e-12);
  EXPECT_NEAR(time.computation, 0.6, 1e-9);
  EXPECT_NEAR(time.communication, 0.2, 1e-9);
  EXPECT_NEAR(time.hidden, 0.1, 1e-9);
  EXPECT_NEAR(time.data, 0.1, 1e-9);
  EXPECT_NEAR(time.idle, 0.1, 1e-9);
  EXPECT_EQ(time.kinds[0].first, "backward");
  EXPECT_NEAR(time.kinds[0].second, 0.2, 1e-9);
  EXPECT_NEAR(
      step_time_of(timeline({lane(0, "compute", {span("forward", 0, 50), span("forward", 90, 10)})}), 0.3)
          .data,
      0.3, 1e-9);
  EXPECT_EQ(step_time_of({}, 0.5).seconds, 0);
}

TEST(Advice, NamesWhatLimits) {
  struct Row {
    const char* name;
    std::vector<LaneTimes> lanes;
    double data_share;
    RecipeKeys keys;
    const char *limit, *first;
    double faster;
    double starved = 0;
  };
  const auto computes = [](int rank, double length) {
    return lane(rank, "compute", {span("forward b0", 0, length)});
  };
  const auto waits = [](int rank, double begin, double length) {
    return lane(rank, "waits in collectives", {span("all_reduce", begin, length)});
  };
  const Row rows[] = {
      {"all well", {computes(0, 95), waits(0, 95, 5)}, 0, {}, "computation limits", "", 0},
      {"data",
       {lane(0, "compute", {span("forward", 40, 60)}), lane(0, "host", {span("load s0", 0, 40)})},
       0,
       {{"data.workers", "3"}},
       "data limits",
       "data.workers=6",
       0.4 / 0.6},
      {"communication",
       {computes(0, 50), waits(0, 50, 50), computes(1, 50), waits(1, 50, 50)},
       0,
       {{"parallel.zero", "3"}, {"batch.global", "8"}},
       "communication limits",
       "parallel.zero=1",
       0.25 / 0.75},
      {"batch",
       {computes(0, 50), waits(0, 50, 50)},
       0,
       {{"batch.global", "8"}},
       "communication limits",
       "batch.global=16",
       0.25 / 0.75},
      {"one rank",
       {computes(0, 30), waits(0, 30, 70), computes(1, 30), waits(1, 30, 70), computes(2, 95),
        waits(2, 95, 5)},
       0,
       {},
       "wait for rank 2",
       "look at the machine of rank 2",
       0.65 / 0.35},
      {"recomputation",
       {lane(0, "compute", {span("recompute b0", 0, 20), span("forward b0", 20, 80)})},
       0,
       {{"memory.recompute", "full"}},
       "computation limits",
       "memory.recompute=cheap",
       0.1 / 0.9},
      {"idle",
       {lane(0, "compute", {span("forward", 0, 30), span("forward", 70, 30)})},
       0,
       {{"batch.slices", "8"}},
       "overhead limits",
       "batch.slices=4",
       0.2 / 0.8},
      {"other programs have the processors",
       {computes(0, 90), waits(0, 90, 10)},
       0,
       {},
       "a busy host limits it",
       "leave the processors to this run",
       0.5 / 0.5,
       0.5},
      {"they often have them, and ranks wait for each other's",
       {computes(0, 30), waits(0, 30, 70)},
       0,
       {{"batch.global", "8"}},
       "a busy host limits it",
       "leave the processors to this run",
       0.5 / 0.5,
       0.5},
      {"tensor ranks have no gradients to reduce",
       {computes(0, 50), waits(0, 50, 50), computes(1, 50), waits(1, 50, 50)},
       0,
       {{"parallel.tensor", "2"}, {"parallel.data", "\"auto\""}, {"batch.global", "8"}},
       "communication limits",
       "parallel.tensor=1",
       0.25 / 0.75},
      {"stages wait for the first slices",
       {computes(0, 50), waits(0, 50, 50), computes(1, 50), waits(1, 50, 50)},
       0,
       {{"parallel.pipeline", "2"}, {"batch.slices", "2"}, {"batch.global", "8"}},
       "communication limits",
       "batch.slices=4",
       (1.0 / 3 - 1.0 / 5) / (1 - 1.0 / 3 + 1.0 / 5)},
      {"they have some, and communication takes more",
       {computes(0, 50), waits(0, 50, 50)},
       0,
       {{"batch.global", "8"}},
       "communication limits",
       "batch.global=16",
       0.25 / 0.75,
       0.12},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    StepTime time = step_time_of(timeline(row.lanes), row.data_share);
    time.starved = row.starved;
    EXPECT_NE(limit_of(time).find(row.limit), std::string::npos) << limit_of(time);
    const std::vector<Advice> advice = advice_for(time, row.keys);
    ASSERT_EQ(advice.empty(), std::string(row.first).empty());
    if (advice.empty()) continue;
    EXPECT_EQ(advice[0].change, row.first);
    EXPECT_NEAR(advice[0].faster, row.faster, 1e-9);
  }
  EXPECT_TRUE(advice_for({}, {}).empty());
}

// Four threads on one processor wait for it three quarters of the time; one alone, on a machine that may be
// busy, less.
TEST(ProcessorTime, ThreadsThatShareAProcessorWait) {
  const auto spin = [](int threads) {
    const pid_t child = ::fork();
    if (child == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(static_cast<size_t>(::sched_getcpu()), &one);
      if (threads > 1) ::sched_setaffinity(0, sizeof one, &one);
      for (int k = 1; k < threads; ++k)
        std::thread([] {
          for (volatile int64_t n = 0;;) n = n + 1;
        }).detach();
      for (volatile int64_t n = 0;;) n = n + 1;
    }
    const double part = waiting_for_processors({child}, std::chrono::milliseconds(1500));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return part;
  };
  EXPECT_GT(spin(4), 0.6);
  EXPECT_LT(spin(1), 0.9);
  EXPECT_EQ(waiting_for_processors({}, std::chrono::milliseconds(1500)), 0);
  EXPECT_EQ(waiting_for_processors({1 << 30}, std::chrono::milliseconds(1)), 0) << "no such process";
}

TEST(Pace, ARunThatHasBecomeSlow) {
  const auto rows = [](int slow) {
    MetricTable table;
    for (int step = 1; step <= 200; ++step)
      table.add({.step = step,
                 .seconds = 0,
                 .values = {{"step_ms", step > 200 - slow ? 30.0 : 10.0}, {"data_wait_ms", 1.5}}});
    return table;
  };
  EXPECT_EQ(pace_of(rows(5)).slower, 0);
  EXPECT_DOUBLE_EQ(pace_of(rows(20)).slower, 3);
  EXPECT_DOUBLE_EQ(pace_of(rows(20)).data_share, 0.05);
  EXPECT_EQ(pace_of({}).slower, 0);
}

}  // namespace
}  // namespace lockstep::see
