// Random lists of calls on several lanes: whatever the threads do, each call comes once, behind those it
// waits for and behind the one before it on its lane.
#include "lockstep/run/executor/lanes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>

#include "lockstep/base/spin.h"
#include "lockstep/program/check.h"

namespace lockstep::run {
namespace {

using program::Lane;
using program::Program;

Program listed(const std::vector<std::pair<Lane, std::vector<int>>>& calls) {
  Program program;
  for (const auto& [lane, waits] : calls) {
    program::Instruction i;
    i.lane = lane, i.waits = waits;
    program.instructions.push_back(i);
  }
  return program;
}

Program random_program(std::mt19937_64& random) {
  constexpr Lane kLanesHere[] = {Lane::compute, Lane::host, Lane::seam, Lane::reduce, Lane::gather};
  std::vector<std::pair<Lane, std::vector<int>>> calls(1 + random() % 60);
  for (size_t n = 0; n < calls.size(); ++n) {
    calls[n].first = n == 0 ? Lane::compute : kLanesHere[random() % std::size(kLanesHere)];
    for (int back = 1; back <= 3 && static_cast<int>(n) >= back; ++back) {
      const int other = static_cast<int>(n) - back;
      if (random() % 2 == 0 &&
          program::thread_of(calls[static_cast<size_t>(other)].first) != program::thread_of(calls[n].first))
        calls[n].second.push_back(other);
    }
  }
  return listed(calls);
}

TEST(Lanes, CallsComeOnceAndBehindWhatTheyWaitFor) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  size_t taken = 0;
  for (int round = 0; round < 300; ++round) {
    const Program program = random_program(random);
    for (const bool one : taken_along(program)) taken += one ? 1 : 0;
    std::vector<std::atomic<int>> done(program.instructions.size());
    std::vector<int> lane_before(program.instructions.size(), -1);
    std::map<Lane, int> last;
    for (size_t n = 0; n < program.instructions.size(); ++n) {
      const Lane lane = program::thread_of(program.instructions[n].lane);
      if (last.contains(lane)) lane_before[n] = last[lane];
      last[lane] = static_cast<int>(n);
    }
    std::atomic<int> step{0}, wrong{0};
    Lanes lanes(program, [&](size_t n) {
      const int now = step.load();
      const auto is_done = [&](int other) { return done[static_cast<size_t>(other)].load() == now; };
      for (const int other : program.instructions[n].waits) wrong += is_done(other) ? 0 : 1;
      if (lane_before[n] >= 0) wrong += is_done(lane_before[n]) ? 0 : 1;
      wrong += done[n].exchange(now) == now - 1 ? 0 : 1;
    });
    for (int k = 1; k <= 5; ++k) {
      step = k;
      lanes.run();
      for (const std::atomic<int>& one : done) ASSERT_EQ(one.load(), k);
    }
    ASSERT_EQ(wrong.load(), 0);
  }
  EXPECT_GT(taken, 100U);  // of some 9,000 calls
}

// c is the compute lane, s the one for sums between tensor ranks, r another.
TEST(Lanes, WhatTheComputeLaneWouldOnlyWaitForItDoesItself) {
  constexpr Lane c = Lane::compute, s = Lane::seam, r = Lane::reduce;
  const struct {
    const char* name;
    std::vector<std::pair<Lane, std::vector<int>>> calls;
    std::vector<bool> taken;
  } rows[] = {
      {"a sum between neighbours", {{c, {}}, {s, {0}}, {c, {1}}}, {false, true, false}},
      {"something to do meanwhile", {{c, {}}, {s, {0}}, {c, {}}, {c, {1}}}, {false, false, false, false}},
      {"the lane is still busy",
       {{c, {}}, {s, {}}, {c, {}}, {s, {2}}, {c, {3}}},
       {false, false, false, true, false}},
      {"nobody waits for it", {{c, {}}, {r, {0}}, {c, {}}}, {false, false, false}},
      {"waits for nobody", {{c, {}}, {r, {}}, {c, {1}}}, {false, false, false}},
      {"one of two", {{c, {}}, {s, {0}}, {r, {0}}, {c, {1, 2}}}, {false, true, false, false}},
      {"the lane waits for it later",
       {{c, {}}, {r, {0}}, {s, {0}}, {c, {2}}, {c, {1}}},
       {false, false, true, false, false}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(taken_along(listed(row.calls)), row.taken);
  }
}

// A pipeline stage sends and receives between two of its segments; neither may wait for the other.
TEST(Lanes, WhatStandsBetweenTheSameTwoRunsBesideEachOther) {
  const Program program = listed({{Lane::compute, {}},
                                  {Lane::seam, {0}},
                                  {Lane::reduce, {0}},
                                  {Lane::gather, {0}},
                                  {Lane::compute, {1, 2, 3}}});
  std::atomic<int> met{0};
  std::atomic<bool> alone{false};
  Lanes lanes(program, [&](size_t n) {
    if (n == 0 || n == 4) return;
    ++met;
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (met < 3 && std::chrono::steady_clock::now() < late) std::this_thread::yield();
    if (met < 3) alone = true;
  });
  lanes.run();
  EXPECT_FALSE(alone);
}

TEST(Lanes, AnErrorOfAnyLaneEndsTheStep) {
  const Program program = listed({{Lane::compute, {}},
                                  {Lane::reduce, {0}},
                                  {Lane::compute, {}},
                                  {Lane::seam, {1}},
                                  {Lane::compute, {3}}});
  for (size_t bad = 0; bad < program.instructions.size(); ++bad) {
    std::atomic<int> behind{0};
    Lanes lanes(program, [&](size_t n) {
      if (n == bad) throw std::runtime_error("bad");
      for (const int other : program.instructions[n].waits)
        behind += static_cast<size_t>(other) == bad ? 1 : 0;
    });
    EXPECT_THROW(lanes.run(), std::runtime_error) << bad;
    EXPECT_THROW(lanes.run(), std::runtime_error) << bad;
    EXPECT_EQ(behind.load(), 0) << bad;
  }
}

TEST(Spin, LearnsFromWaitsInVainAndTriesAgain) {
  base::Spin spin({.least = 4, .most = 64});
  const auto looks = [&](int ready_after) {
    int count = 0;
    const bool reached = spin.until([&] { return ++count > ready_after; });
    return reached ? -count : count;
  };
  EXPECT_EQ(looks(3), -4);  // reached at the fourth look
  for (const int expected : {64, 32, 16, 8, 4, 4}) EXPECT_EQ(looks(1000), expected);
  int longest = 0;
  for (int i = 0; i < 40; ++i) longest = std::max(longest, looks(1000));
  EXPECT_EQ(longest, 64);  // now and then
  for (int i = 0; i < 40 && looks(20) > 0; ++i) {
  }
  EXPECT_EQ(looks(20), -21);  // a long one was worth it: the next are long again
}

}  // namespace
}  // namespace lockstep::run
