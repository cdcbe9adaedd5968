#include "lockstep/watch/facts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::watch {
namespace {

using watch::Phase;

base::RingEntry mark(uint64_t ticket, base::RingStamp stamp, int64_t start, int64_t finish) {
  return {ticket, stamp, start, start, finish};
}

TEST(Facts, ADigestOfMarks) {
  const int64_t second = 1000000000;
  const Names names = read_names(
      R"({"pid": 7, "groups": [{"name": "host", "engine": "shm", "enqueues": false, "members": [0, 1]},)"
      R"({"name": "reduce.data.0", "engine": "nccl", "enqueues": true, "members": [0, 1]}], "instructions": ["load s0", "reduce b1"]})");
  ASSERT_EQ(names.groups.size(), 2u);
  EXPECT_TRUE(names.groups[1].enqueues);
  std::vector<base::RingEntry> marks, phases;
  phases.push_back(mark(0, {.step = 0, .op = 1}, second, 0));
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t at = (step * 10 + 1) * second;
    marks.push_back(
        mark(marks.size(), {.step = step, .instruction = 0, .op = 0, .slice = 0}, at, at + 2 * second));
    marks.push_back(mark(marks.size(),
                         {.step = step, .instruction = 1, .op = 100, .group = 1, .sequence = step},
                         at + 3 * second, 0));
    marks.push_back(mark(marks.size(), {.step = step, .op = 100, .group = 0, .sequence = step},
                         at + 5 * second, step < 2 ? at + 6 * second : 0));
  }
  const RankFacts facts = digest(marks, phases, names, 40 * second);
  EXPECT_EQ(facts.phase, Phase::train);
  EXPECT_EQ(facts.step, 2);
  EXPECT_EQ(facts.last, "load s0");
  EXPECT_FALSE(facts.last_open);
  EXPECT_DOUBLE_EQ(facts.usual_step, 10);
  EXPECT_DOUBLE_EQ(facts.last_seconds, 14);  // the open call of group 0
  EXPECT_TRUE(facts.groups[0].inside);
  EXPECT_EQ(facts.groups[0].entered, 2);
  EXPECT_DOUBLE_EQ(facts.groups[0].since, 14);
  EXPECT_EQ(facts.groups[0].call, "all_reduce");
  EXPECT_TRUE(facts.groups[1].inside);
  EXPECT_EQ(facts.groups[1].call, "reduce b1");
  EXPECT_EQ(facts.reached, "load s0 of step 3");
  // What the device has not come to is enqueued, and nothing more.
  marks[7].started_ns = 0;
  const RankFacts behind = digest(marks, phases, names, 40 * second);
  EXPECT_EQ(behind.groups[1].entered, 1);
}

// As Linux tells of them: the main thread and who runs do not count.
TEST(Facts, ThreadsThatStandInTheKernel) {
  const base::TemporaryFolder proc;
  const auto thread = [&](int number, const std::string& state, int waits) {
    proc.write(fmt::format("7/task/{}/status", number),
               fmt::format("Name:\tlockstep\nState:\t{}\nThreads:\t4\nvoluntary_ctxt_switches:\t{}\n"
                           "nonvoluntary_ctxt_switches:\t3\n",
                           state, waits));
  };
  thread(7, "D (disk sleep)", 1), thread(8, "D (disk sleep)", 40), thread(9, "S (sleeping)", 5);
  EXPECT_EQ(blocked_threads(7, proc.path()), (std::map<int, int64_t>{{8, 43}}));
  thread(8, "R (running)", 41), thread(9, "D (disk sleep)", 6);
  EXPECT_EQ(blocked_threads(7, proc.path()), (std::map<int, int64_t>{{9, 9}}));
  EXPECT_TRUE(blocked_threads(10, proc.path()).empty());
}

TEST(Facts, NamesThatAreDamagedAreLeftOut) {
  for (const char* text :
       {"", "[]", "{", R"({"groups": 3})", R"({"groups": [{"name": 1}], "instructions": []})"}) {
    EXPECT_TRUE(read_names(text).groups.empty()) << text;
  }
}

TEST(Facts, WaitsAreNoLongerThanSomebodyWasThere) {
  RankFacts facts;
  facts.last_seconds = 100, facts.phase_seconds = 2;
  facts.groups = {{.since = 90}, {.since = 1}};
  limit_waits(facts, 5);
  EXPECT_EQ(facts.last_seconds, 5);
  EXPECT_EQ(facts.phase_seconds, 2);
  EXPECT_EQ(facts.groups[0].since, 5);
  EXPECT_EQ(facts.groups[1].since, 1);
}

}  // namespace
}  // namespace lockstep::watch
