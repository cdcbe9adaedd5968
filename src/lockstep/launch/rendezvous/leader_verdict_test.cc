#include "lockstep/launch/rendezvous/leader_verdict.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(LeaderVerdict, AfterAFailure) {
  struct Row {
    const char* name;
    FailureFacts facts;
    Follows follows;
  };
  const Row rows[] = {
      {"no budget", {.code = 1}, {false, false, 1}},
      {"a restart", {.code = 1, .max_restarts = 1}, {true, true, 1}},
      {"the last was used", {.code = 1, .restarts = 1, .max_restarts = 1}, {false, false, 1}},
      {"a foreign program's code is not ours", {.code = 42}, {false, false, 1}},
      {"ours is", {.code = 3, .own_program = true}, {false, false, 3}},
      {"refused once, refused again", {.code = 2, .own_program = true, .max_restarts = 3}, {false, false, 2}},
      {"a foreign program's 2 means nothing", {.code = 2, .max_restarts = 3}, {true, true, 1}},
      {"for good", {.code = 137, .final = true, .own_program = true, .max_restarts = 3}, {false, false, 1}},
      {"preempted costs nothing", {.code = 75, .restarts = 1, .max_restarts = 1}, {true, false, 75}},
      {"preempted without a budget", {.code = 75}, {false, false, 75}},
      {"too soon to be true",
       {.code = 75, .lasted = false, .restarts = 1, .max_restarts = 1},
       {false, false, 75}},
      {"too soon burns one", {.code = 75, .lasted = false, .max_restarts = 1}, {true, true, 75}},
      {"told to end", {.code = 1, .told_to_end = true, .max_restarts = 3}, {false, false, 1}},
      {"ours, told to end",
       {.code = 137, .own_program = true, .told_to_end = true, .max_restarts = 3},
       {false, false, 75}},
      {"could not save",
       {.code = 1, .own_program = true, .only_saves = true, .max_restarts = 3},
       {false, false, 1}},
      {"a lost task", {.code = 1, .lost_task = true, .max_restarts = 3}, {false, false, 1}},
  };
  for (const Row& row : rows) {
    const Follows follows = after_failure(row.facts);
    EXPECT_EQ(follows.again, row.follows.again) << row.name;
    EXPECT_EQ(follows.burns, row.follows.burns) << row.name;
    EXPECT_EQ(follows.code, row.follows.code) << row.name;
  }
}

TEST(LeaderVerdict, RanksThatWereEndedCountAsEndedByTheSignal) {
  EXPECT_EQ(code_after(137, 15, false), 143);
  EXPECT_EQ(code_after(137, 15, true), 75);
  EXPECT_EQ(code_after(137, 0, true), 137);
  EXPECT_EQ(code_after(1, 15, true), 1);
  EXPECT_EQ(code_after(0, 15, true), 0);
}

TEST(LeaderVerdict, RescuesAreForStepsOfOursThatNothingHolds) {
  EXPECT_TRUE(needs_rescue({.own_program = true, .holds_unsaved = true, .rescues = 1}));
  EXPECT_FALSE(needs_rescue({.own_program = true, .holds_unsaved = true, .rescues = 2}));
  EXPECT_FALSE(needs_rescue({.own_program = true, .holds_unsaved = false}));
  EXPECT_FALSE(needs_rescue({.own_program = false, .holds_unsaved = true}));
}

}  // namespace
}  // namespace lockstep::launch
