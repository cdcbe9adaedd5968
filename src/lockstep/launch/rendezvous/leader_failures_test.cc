// Failures, losses and what memory holds, among nodes that are only names: what follows, one row or story
// each.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "lockstep/launch/rendezvous/leader_testing.h"

namespace lockstep::launch {
namespace {

struct EndRow {
  const char* name;
  int max_restarts;
  bool own_program;
  int code;  // of the rank that failed
  bool again;
  int burnt, exit_code;
};

TEST(Leader, WhatFollowsAFailure) {
  const EndRow rows[] = {
      {"no budget", 0, false, 1, false, 0, 1},
      {"a restart", 1, false, 1, true, 1, 0},
      {"a signal is a failure too", 1, false, 139, true, 1, 0},
      {"preempted: the budget stays", 1, false, 75, true, 0, 0},
      {"preempted without a budget", 0, false, 75, false, 0, 75},
      {"refused once, refused again", 3, true, 2, false, 0, 2},
      {"unusable data", 3, true, 3, false, 0, 3},
      {"our own failure", 3, true, 1, true, 1, 0},
      {"a foreign program's 2 is nothing special", 3, false, 2, true, 1, 0},
      {"a foreign program's code", 0, false, 42, false, 0, 1},
  };
  for (const EndRow& row : rows) {
    Story story(nodes(2, 2, row.max_restarts), row.own_program);
    story.join(card("a", 0)), story.join(card("b", 1));
    story.fail("b", row.code);
    story.beat();
    EXPECT_EQ(story.state.phase, Phase::stopping) << row.name;
    EXPECT_EQ(story.state.again, row.again) << row.name;
    EXPECT_EQ(story.state.restarts, row.burnt) << row.name;
    story.tell("a", "stopped");
    EXPECT_EQ(story.state.phase, Phase::stopping) << row.name << ": b still has ranks";
    story.tell("b", "stopped");
    EXPECT_EQ(story.state.phase, row.again ? Phase::rendezvous : Phase::over) << row.name;
    EXPECT_EQ(story.state.round, row.again ? 1 : 0) << row.name;
    EXPECT_EQ(row.again ? 0 : story.state.code, row.exit_code) << row.name;
  }
}

// A run that gets further between failures is not the one that the budget is for.
TEST(Leader, ProgressRefillsTheBudget) {
  struct Row {
    int64_t step;  // at which it fails
    bool again;
    int burnt;
  };
  const std::vector<std::vector<Row>> stories = {
      {{10, true, 1}, {10, true, 2}, {10, false, 2}},
      {{10, true, 1}, {10, true, 2}, {11, true, 1}, {11, true, 2}, {9, false, 2}},
      {{-1, true, 1}, {-1, true, 2}, {-1, false, 2}},
  };
  for (const std::vector<Row>& rows : stories) {
    Story story(nodes(1, 1, 2), true);
    story.join(card("a", 0));
    for (const Row& row : rows) {
      Failure failure;
      failure.rank = 0, failure.code = 137, failure.unix_micros = 1;
      story.send({{"say", "failed"}, {"token", "a"}, {"failures", {to_json(failure)}}, {"step", row.step}});
      EXPECT_EQ(story.state.again, row.again) << row.step;
      EXPECT_EQ(story.state.restarts, row.burnt) << row.step;
      story.tell("a", "stopped");
      story.join(card("a", 0));
    }
  }
}

TEST(Leader, WhatWouldFailAgainIsNotTried) {
  Story story(nodes(1, 1, 2), true);
  story.join(card("a", 0));
  Failure failure;
  failure.rank = 0, failure.code = 1, failure.unix_micros = 1, failure.final = true;
  story.send({{"say", "failed"}, {"token", "a"}, {"failures", {to_json(failure)}}});
  EXPECT_FALSE(story.state.again);
}

// In every state of a run of ours a signal ends with 75; where memory holds steps that no checkpoint has, a
// round that only saves comes first. So it is with a failure too many, which keeps its code.
struct RescueRow {
  const char* name;
  bool own_program, before, drop;  // the signal comes before the failure
  int64_t newest, saved;           // what "stopped" says of the ranks' memory
  int restarts;
  bool signal, rescue;
  int code;
};

TEST(Leader, WhatMemoryHoldsIsSavedBeforeTheEnd) {
  const RescueRow rows[] = {
      {"a signal while ranks recover", true, false, false, 50, 0, 3, true, true, 75},
      {"the same, and all is saved", true, false, false, 50, 50, 3, true, false, 75},
      {"the same, and nothing was done", true, false, false, 0, 0, 3, true, false, 75},
      {"a rank is lost after the signal", true, true, false, 50, 40, 3, true, true, 75},
      {"a step that does not fit is dropped", true, true, true, 50, 40, 3, true, true, 75},
      {"a failure too many", true, false, false, 50, 40, 0, false, true, 1},
      {"a failure too many, all saved", true, false, false, 40, 40, 0, false, false, 1},
      {"another program has no memory", false, true, false, 0, 0, 3, true, false, 1},
  };
  for (const RescueRow& row : rows) {
    Story story(nodes(1, 1, row.restarts), row.own_program);
    const nlohmann::json signal{{"say", "signal"}, {"token", "a"}, {"signal", 15}, {"drop", row.drop}};
    story.join(card("a", 0));
    if (row.before) story.send(signal);
    if (!row.drop) story.fail("a", 137);
    EXPECT_EQ(story.state.phase, Phase::stopping) << row.name;
    if (row.signal && !row.before) story.send(signal);
    story.send({{"say", "stopped"}, {"token", "a"}, {"newest", row.newest}, {"saved", row.saved}});
    if (row.rescue) {
      EXPECT_EQ(story.state.phase, Phase::rendezvous) << row.name;
      EXPECT_TRUE(story.state.save_only) << row.name;
      story.join(card("a", 0));
      EXPECT_EQ(story.state.phase, Phase::running) << row.name;
      story.send(
          {{"say", "done"}, {"token", "a"}, {"code", 75}, {"newest", row.newest}, {"saved", row.newest}});
    }
    EXPECT_EQ(story.state.phase, Phase::over) << row.name;
    EXPECT_EQ(story.state.code, row.code) << row.name;
  }
}

// Also in the rendezvous between two rounds, and while ranks that were started again have nothing of their
// own yet.
TEST(Leader, ASignalBetweenRoundsSavesWhatMemoryHolds) {
  for (const bool in_rendezvous : {true, false}) {
    Story story(nodes(1, 1, 3), true);
    story.join(card("a", 0));
    story.fail("a", 137);
    story.send({{"say", "stopped"}, {"token", "a"}, {"newest", 50}});
    EXPECT_EQ(story.state.phase, Phase::rendezvous);
    if (!in_rendezvous) story.join(card("a", 0));
    story.send({{"say", "signal"}, {"token", "a"}, {"signal", 15}});
    if (!in_rendezvous) {  // its ranks end with nothing saved
      story.send({{"say", "done"}, {"token", "a"}, {"code", 75}});
      EXPECT_EQ(story.state.phase, Phase::stopping);
      story.tell("a", "stopped");
    }
    EXPECT_TRUE(story.state.save_only);
    story.join(card("a", 0));
    EXPECT_EQ(story.state.phase, Phase::running);
    story.send({{"say", "done"}, {"token", "a"}, {"code", 75}, {"saved", 50}});
    EXPECT_EQ(story.state.phase, Phase::over);
    EXPECT_EQ(story.state.code, 75);
  }
}

// With a node lost for good nobody waits for it: the others keep what they hold.
TEST(Leader, FewerNodesThanThereWereDoNotSave) {
  for (const int least : {1, 2}) {
    Story story(nodes(least, 2, 0), true);
    story.join(card("a", 0)), story.join(card("b", 1));
    story.fail("a", 1);
    story.beat();
    story.send({{"say", "stopped"}, {"token", "a"}, {"newest", 50}});
    story.tell("b", "bye");
    EXPECT_TRUE(story.state.save_only);
    story.join(card("a", 0));
    EXPECT_EQ(story.state.phase, Phase::over);
    EXPECT_EQ(story.state.code, 1);
  }
}

// Ranks that cannot even save end twice, and then the launchers are left to do it.
TEST(Leader, SavingIsTriedTwice) {
  Story story(nodes(1, 1, 0), true);
  story.join(card("a", 0));
  int rounds = 0;
  while (story.state.phase != Phase::over && ++rounds < 10) {
    story.fail("a", 1);
    story.send({{"say", "stopped"}, {"token", "a"}, {"newest", 50}});
    story.join(card("a", 0));
  }
  EXPECT_EQ(rounds, 3);
  EXPECT_EQ(story.state.code, 1);
}

// Its ranks could not be ended in time, for a disk that stood still; then they were.
TEST(Leader, TheOnlyNodeIsWaitedForAndOneThatWasLeftOutMayComeBack) {
  Options options = nodes(1, 1, 3);
  options.grace = Duration(-15000);  // no patience at all
  Story alone(options, true);
  alone.join(card("a", 0));
  alone.fail("a", 1);
  alone.turn();
  EXPECT_EQ(alone.state.phase, Phase::stopping);
  alone.tell("a", "stopped");
  alone.join(card("a", 0));
  EXPECT_EQ(alone.state.phase, Phase::running);

  options.max_nodes = 2;
  Story two(options, true);
  two.join(card("a", 0)), two.join(card("b", 1));
  two.fail("b", 1);
  two.beat();
  EXPECT_EQ(two.state.phase, Phase::stopping);
  two.tell("a", "stopped");
  EXPECT_NE(two.said.find("b did not stop its ranks in time"), std::string::npos) << two.said;
  two.join(card("b", 1)), two.join(card("a", 0));
  EXPECT_EQ(two.state.phase, Phase::running);
  EXPECT_EQ(two.state.nodes.size(), 2u);
}

TEST(Leader, TheEarliestFailureIsFirst) {
  Options options = nodes(2, 2);
  options.monitor_interval = Duration(50);
  Story story(options);
  story.join(card("a", 0)), story.join(card("b", 1));
  story.fail("a", 1, 200);
  EXPECT_EQ(story.state.phase, Phase::running) << "others may have failed before";
  story.fail("b", 139, 100);
  story.pass(60);
  story.beat();
  ASSERT_EQ(story.state.failures.size(), 2u);
  EXPECT_EQ(story.state.failures[0].host, "b");
}

TEST(Leader, ADeadNodeIsTheCauseOfOthersFailures) {
  Story story(nodes(2, 2));
  story.join(card("a", 0)), story.join(card("b", 1));
  story.pass(10);
  story.fail("a", 1, story.unix_micros());
  EXPECT_EQ(story.state.phase, Phase::running) << "b may be dead";
  story.live("b");  // its last, from before: seen only now
  for (int k = 0; k < 60 && story.state.phase == Phase::running; ++k) {
    story.pass(100);
    story.live("a");
  }
  ASSERT_EQ(story.state.failures.size(), 2u);
  EXPECT_EQ(story.state.failures[0].host, "b");
  EXPECT_NE(story.state.failures[0].ending.find("rank 1) was lost"), std::string::npos)
      << story.state.failures[0].ending;
}

TEST(Leader, ASilentNodeIsNamed) {
  Options options = nodes(2, 2);
  options.node_timeout = Duration(600);
  Story story(options);
  story.join(card("a", 0)), story.join(card("b", 1));
  for (int k = 0; k < 20 && story.state.phase == Phase::running; ++k) {
    story.pass(100);
    story.turn();
  }
  ASSERT_FALSE(story.state.failures.empty());
  EXPECT_NE(story.state.failures[0].ending.find("was lost"), std::string::npos);
}

TEST(Leader, ALostTaskEndsTheRun) {
  Options options = nodes(2, 2);
  options.max_restarts = 3;
  Story story(options, true);
  story.join(task_card(0, "a"));
  EXPECT_EQ(story.state.waiting, "waiting for 1 of 2 tasks: task 1");
  story.join(task_card(1, "a"));
  ASSERT_EQ(story.state.phase, Phase::running);
  story.send({{"say", "lost"}, {"token", "a"}, {"lost", "b"}});
  story.beat();
  ASSERT_EQ(story.state.phase, Phase::stopping);
  EXPECT_FALSE(story.state.again);
  ASSERT_EQ(story.state.failures.size(), 1u);
  EXPECT_EQ(story.state.failures[0].rank, 1);
  EXPECT_EQ(story.state.failures[0].ending, "its task was killed");
}

TEST(Leader, ATaskThatIsLostBeforeTheStartEndsTheRun) {
  Story story(nodes(2, 2), true);
  story.join(task_card(1, "a"));
  story.send({{"say", "lost"}, {"token", "b"}, {"lost", "b"}});
  EXPECT_EQ(story.state.phase, Phase::over);
  EXPECT_NE(story.state.why.find("task 1 on"), std::string::npos) << story.state.why;
}

}  // namespace
}  // namespace lockstep::launch
