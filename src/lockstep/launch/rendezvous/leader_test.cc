// Roll calls, restarts and losses among nodes that are only names: the leader's decisions, one row or story
// each.
#include "lockstep/launch/rendezvous/leader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

namespace lockstep::launch {
namespace {

NodeCard card(const std::string& name, int wanted = -1, int ranks = 1) {
  NodeCard card;
  card.token = name, card.host = name, card.address = "10.0.0." + name, card.wanted = wanted,
  card.ranks = ranks;
  return card;
}

TEST(PlaceNodes, GivenNumbersFirst) {
  const std::vector<NodePlace> places = place_nodes({card("a"), card("b", 0, 4), card("c"), card("d", 2, 2)});
  std::string order;
  for (const NodePlace& place : places) order += place.card.token + std::to_string(place.first_rank) + " ";
  EXPECT_EQ(order, "b0 a4 d5 c7 ");
}

TEST(PlaceNodes, NumbersBeyondTheRestMoveUp) {
  const std::vector<NodePlace> places = place_nodes({card("a", 0), card("d", 3)});
  EXPECT_EQ(places[1].card.token, "d");
  EXPECT_EQ(places[1].node, 1);
}

TEST(PlaceNodes, RolesAreCountedApart) {
  NodeCard reader = card("b", 1, 2);
  reader.role = "reader";
  const std::vector<NodePlace> places = place_nodes({card("a", 0, 4), reader, card("c", 2, 4)});
  EXPECT_EQ(places[1].role_rank, 0);
  EXPECT_EQ(places[1].role_world, 2);
  EXPECT_EQ(places[2].role_rank, 4);
  EXPECT_EQ(places[2].role_world, 8);
}

TEST(DescribeWaiting, SaysWhoIsMissing) {
  EXPECT_EQ(describe_waiting({card("a", 0), card("b", 1), card("d", 3)}, 4),
            "waiting for 1 of 4 nodes: node 2");
  EXPECT_EQ(describe_waiting({card("a"), card("b")}, 4), "waiting for 2 of 4 nodes; here: a, b");
  EXPECT_EQ(describe_waiting({}, 2), "waiting for 2 of 2 nodes");
}

// Some nodes and their leader, over a store in this process.
class Story {
 public:
  explicit Story(Options options, bool own_program = false)
      : options_(options),
        leader_(options, {own_program, Duration(0)}, store_->clone(),
                [this](const std::string& text) { said += text + "\n"; }) {}
  void send(nlohmann::json message) {
    if (!message.contains("round")) message["round"] = state.round;
    send_text(message.dump());
  }
  void send_text(const std::string& text) {
    store_->push(kInbox, text);
    turn();
  }
  // Heard in the leader's next turn.
  void come(NodeCard node) {
    node.min_nodes = options_.min_nodes, node.max_nodes = options_.max_nodes;
    const nlohmann::json message = {
        {"say", "join"}, {"token", node.token}, {"card", to_json(node)}, {"round", state.round}};
    store_->push(kInbox, message.dump());
  }
  void join(const NodeCard& node) {
    come(node);
    turn();
  }
  void tell(const std::string& token, const std::string& what) { send({{"say", what}, {"token", token}}); }
  void fail(const std::string& token, int code, int64_t micros = 1) {
    Failure failure;
    failure.rank = 0, failure.host = token, failure.code = code, failure.unix_micros = micros;
    send({{"say", "failed"}, {"token", token}, {"failures", {to_json(failure)}}});
  }
  void live(const std::string& token) {
    store_->add(beat_key(token), 1);
    turn();
  }
  // Everyone shows that it lives; the leader looks at that twice a second, and after a failure more often.
  // What its first look shows may be from before.
  void beat() {
    for (const int ms : {520, 120}) {
      pass(ms);
      for (const char* token : {"a", "b"}) store_->add(beat_key(token), 1);
      turn();
    }
  }
  void pass(int ms) {  // time, and nothing else
    now_.steady += Duration(ms), now_.unix_micros += 1000 * int64_t{ms};
  }
  int64_t unix_micros() const { return now_.unix_micros; }
  void turn() {
    leader_.turn(now_);
    if (const auto text = store_->try_get(kState)) state = state_from_json(nlohmann::json::parse(*text));
  }
  std::string refusal(const std::string& token) { return store_->try_get(refusal_key(token)).value_or(""); }

  State state;
  std::string said;

 private:
  Options options_;
  Moment now_{.steady = {}, .unix_micros = 1};
  std::unique_ptr<comm::Store> store_ = comm::make_local_store();
  Leader leader_;
};

Options nodes(int least, int most, int max_restarts = 0) {
  Options options;
  options.min_nodes = least, options.max_nodes = most, options.max_restarts = max_restarts;
  options.monitor_interval = Duration(0);
  return options;
}

TEST(Leader, StartsWhenEveryoneHasCome) {
  Story story(nodes(2, 2));
  story.join(card("b", 1, 2));
  EXPECT_EQ(story.state.phase, Phase::roll_call);
  EXPECT_EQ(story.state.waiting, "waiting for 1 of 2 nodes: node 0");
  story.join(card("a", 0, 3));
  EXPECT_EQ(story.state.phase, Phase::running);
  EXPECT_EQ(story.state.world, 5);
  EXPECT_EQ(story.state.master_addr, "10.0.0.a");
  EXPECT_EQ(story.state.place_of("b")->first_rank, 3);
}

TEST(Leader, RefusesTheSameNumberTwice) {
  Story story(nodes(2, 2));
  story.join(card("a", 1));
  story.join(card("b", 1));
  EXPECT_NE(story.refusal("b").find("node 1 is already a"), std::string::npos) << story.refusal("b");
  EXPECT_NE(story.said.find("refused a node"), std::string::npos);
  EXPECT_EQ(story.refusal("a"), "");
  EXPECT_EQ(story.state.phase, Phase::roll_call);
}

// A node dies and another takes its number before anybody knows; one that lives keeps its own.
TEST(Leader, ANumberIsFreeOnceItsNodeIsLost) {
  for (const bool lives : {false, true}) {
    Story story(nodes(2, 2, 3));
    story.join(card("a", 0));
    story.join(card("b", 1));
    ASSERT_EQ(story.state.phase, Phase::running);
    story.join(card("c", 1));
    EXPECT_EQ(story.refusal("c"), "") << "not yet";
    for (int k = 0; k < 4 && lives; ++k) story.beat();
    if (!lives) {
      story.beat();  // what it shows now may be from before
      EXPECT_EQ(story.refusal("c"), "");
      story.tell("b", "bye");
    }
    story.pass(520);
    story.turn();
    EXPECT_EQ(story.refusal("c").find("node 1 is already b") != std::string::npos, lives);
  }
}

TEST(Leader, RefusesAnotherIdeaOfTheWorld) {
  Story story(nodes(2, 2));
  story.join(card("a"));
  NodeCard other = card("b");
  other.min_nodes = other.max_nodes = 3;
  story.send({{"say", "join"}, {"token", "b"}, {"card", to_json(other)}});
  EXPECT_NE(story.refusal("b").find("--nnodes 3:3"), std::string::npos) << story.refusal("b");
  NodeCard trains = card("c");
  trains.trains = true;
  story.send({{"say", "join"}, {"token", "c"}, {"card", to_json(trains)}});
  EXPECT_NE(story.refusal("c").find("`lockstep train`, but a runs `lockstep launch`; start the same command"),
            std::string::npos)
      << story.refusal("c");
}

TEST(Leader, EndsWhenAllAreDone) {
  Story story(nodes(2, 2));
  story.join(card("a", 0)), story.join(card("b", 1));
  story.send({{"say", "done"}, {"token", "a"}, {"code", 0}});
  EXPECT_EQ(story.state.phase, Phase::running);
  story.send({{"say", "done"}, {"token", "b"}, {"code", 0}});
  EXPECT_EQ(story.state.phase, Phase::over);
  EXPECT_EQ(story.state.code, 0);
}

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
      {"a stranger's 2 is nothing special", 3, false, 2, true, 1, 0},
      {"a stranger's code", 0, false, 42, false, 0, 1},
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
    EXPECT_EQ(story.state.phase, row.again ? Phase::roll_call : Phase::over) << row.name;
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
      EXPECT_EQ(story.state.phase, Phase::roll_call) << row.name;
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

// Also in the roll call between two rounds, and while ranks that were started again have nothing of their own
// yet.
TEST(Leader, ASignalBetweenRoundsSavesWhatMemoryHolds) {
  for (const bool in_roll_call : {true, false}) {
    Story story(nodes(1, 1, 3), true);
    story.join(card("a", 0));
    story.fail("a", 137);
    story.send({{"say", "stopped"}, {"token", "a"}, {"newest", 50}});
    EXPECT_EQ(story.state.phase, Phase::roll_call);
    if (!in_roll_call) story.join(card("a", 0));
    story.send({{"say", "signal"}, {"token", "a"}, {"signal", 15}});
    if (!in_roll_call) {  // its ranks end with nothing saved
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

TEST(Leader, ElasticRunsGoOnWithFewerAndMore) {
  Options options = nodes(1, 3, 1);
  options.last_call = Duration(30);
  options.node_timeout = Duration(60);
  Story story(options);
  story.join(card("a")), story.join(card("b"));
  EXPECT_EQ(story.state.phase, Phase::roll_call) << "the last call is still on";
  story.pass(40);
  story.turn();
  EXPECT_EQ(story.state.phase, Phase::running);
  EXPECT_EQ(story.state.world, 2);
  story.join(card("c"));  // comes later: all start again with it, for nothing
  EXPECT_EQ(story.state.phase, Phase::stopping);
  story.tell("a", "stopped"), story.tell("b", "stopped");
  story.join(card("a")), story.join(card("b"));
  EXPECT_EQ(story.state.phase, Phase::running);
  EXPECT_EQ(story.state.world, 3);
  EXPECT_EQ(story.state.restarts, 0);
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

NodeCard task_card(int number, const char* machine) {
  NodeCard task = card(std::string(1, static_cast<char>('a' + number)), number);
  task.ranks = 1, task.one_task_a_rank = true, task.machine = machine;
  return task;
}

// Nodes of a scheduler's job are its machines, in the order of their lowest tasks, however tasks are dealt.
TEST(SeatOfTask, IsByMachine) {
  const std::vector<NodeCard> cards = {task_card(0, "b"), task_card(1, "a"), task_card(2, "b"),
                                       task_card(3, "c")};
  State state;
  state.nodes = place_nodes(cards), state.world = 4;
  std::string seats;
  for (const NodePlace& place : state.nodes) {
    const comm::Seat s = seat_of_task(state, place);
    seats += fmt::format("{}/{} local {}/{} node {}/{}; ", s.rank, s.world, s.local_rank, s.local_world,
                         s.node, s.nodes);
  }
  EXPECT_EQ(
      seats,
      "0/4 local 0/2 node 0/3; 1/4 local 0/1 node 1/3; 2/4 local 1/2 node 0/3; 3/4 local 0/1 node 2/3; ");
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

TEST(Leader, NobodyComes) {
  Options options = nodes(2, 2);
  options.join_timeout = Duration(20);
  Story story(options);
  story.join(card("a", 0));
  story.pass(30);
  story.turn();
  EXPECT_EQ(story.state.phase, Phase::over);
  EXPECT_EQ(story.state.code, 1);
  EXPECT_NE(story.state.why.find("waiting for 1 of 2 nodes: node 1; none joined"), std::string::npos)
      << story.state.why;
}

// Those who come in the same moment, too many of them: the rest waits until a place is free.
TEST(Leader, NoMoreNodesThanAskedForTakePart) {
  Story story(nodes(2, 2, 3));
  for (const char* token : {"a", "b", "c"}) story.come(card(token));
  story.turn();
  EXPECT_EQ(story.state.phase, Phase::running);
  EXPECT_EQ(story.state.world, 2);
  EXPECT_EQ(story.state.place_of("c"), nullptr);
  EXPECT_EQ(story.state.phase, Phase::running) << "nobody restarts for one who has no place";
  story.fail("a", 1);
  story.beat();
  story.tell("a", "bye"), story.tell("b", "stopped");
  story.join(card("b"));
  EXPECT_EQ(story.state.phase, Phase::running);
  EXPECT_EQ(story.state.world, 2);
  EXPECT_NE(story.state.place_of("c"), nullptr);
}

// Enough are there; the last call for more is as long as it says, and no longer than the roll call itself.
TEST(Leader, ALastCallEndsWithTheRollCall) {
  for (const auto& [last_call, join_timeout, at] :
       {std::tuple(200, 1000, 200), std::tuple(1000, 200, 200), std::tuple(300, 300, 300)}) {
    SCOPED_TRACE(fmt::format("last call {} ms, join timeout {} ms", last_call, join_timeout));
    Options options = nodes(1, 2);
    options.last_call = Duration(last_call), options.join_timeout = Duration(join_timeout);
    Story story(options);
    story.join(card("a"));
    story.pass(at - 1);
    story.turn();
    EXPECT_EQ(story.state.phase, Phase::roll_call);
    EXPECT_EQ(story.state.waiting, "waiting for 1 of 2 nodes; here: a");
    story.pass(1);
    story.turn();
    EXPECT_EQ(story.state.phase, Phase::running);
    EXPECT_EQ(story.state.world, 1);
  }
}

// One goes while more are called: the last call begins again once there are enough.
TEST(Leader, ALastCallBeginsAgainWhenThereWereTooFew) {
  Options options = nodes(2, 3);
  options.last_call = Duration(200), options.join_timeout = Duration(10000);
  Story story(options);
  story.join(card("a")), story.join(card("b"));
  story.pass(150);
  story.tell("b", "bye");
  EXPECT_EQ(story.state.waiting, "waiting for 1 of 2 nodes; here: a");
  story.join(card("c"));
  story.pass(199);
  story.turn();
  EXPECT_EQ(story.state.phase, Phase::roll_call);
  story.pass(1);
  story.turn();
  EXPECT_EQ(story.state.phase, Phase::running);
}

// A roll call ends at its time limit, not before and not later; what only saves waits for less long.
TEST(Leader, ARollCallHasABound) {
  Options options = nodes(2, 2, 3);
  options.join_timeout = Duration(600'000);
  Story story(options, true);
  story.join(card("a", 0));
  story.pass(599'999);
  story.turn();
  EXPECT_EQ(story.state.phase, Phase::roll_call);
  story.pass(1);
  story.turn();
  EXPECT_EQ(story.state.phase, Phase::over);
  EXPECT_NE(story.state.why.find("none joined within 10 m"), std::string::npos) << story.state.why;

  options.max_restarts = 0, options.node_timeout = Duration(60'000);
  Story saves(options, true);
  saves.join(card("a", 0)), saves.join(card("b", 1));
  saves.fail("a", 1);
  saves.beat();
  saves.send({{"say", "stopped"}, {"token", "a"}, {"newest", 50}});
  saves.tell("b", "stopped");
  ASSERT_TRUE(saves.state.save_only);
  saves.join(card("a", 0));  // the other lives, and does not come
  saves.pass(14'999);
  saves.live("b");
  EXPECT_EQ(saves.state.phase, Phase::roll_call);
  saves.pass(1);
  saves.turn();
  EXPECT_EQ(saves.state.phase, Phase::over);
  EXPECT_EQ(saves.state.code, 1);
}

TEST(Leader, ASignalReachesEveryNodeAndEndsRestarts) {
  Story story(nodes(2, 2, 5));
  story.join(card("a", 0)), story.join(card("b", 1));
  story.send({{"say", "signal"}, {"token", "b"}, {"signal", 15}});
  EXPECT_EQ(story.state.signal, 15);
  story.send({{"say", "done"}, {"token", "a"}, {"code", 0}});
  story.send({{"say", "done"}, {"token", "b"}, {"code", 75}});
  EXPECT_EQ(story.state.phase, Phase::over);
  EXPECT_EQ(story.state.code, 75);
}

TEST(Leader, RanksThatWouldNotEndCountAsEndedByTheSignal) {
  Story story(nodes(1, 1));
  story.join(card("a", 0));
  story.send({{"say", "signal"}, {"token", "a"}, {"signal", 15}});
  story.send({{"say", "done"}, {"token", "a"}, {"code", 137}});
  EXPECT_EQ(story.state.code, 143);
}

TEST(Leader, NonsenseIsIgnored) {
  Story story(nodes(1, 1));
  for (const char* text :
       {"", "{", "{}", "[]", "7", R"({"say": "join"})", R"({"say": "done", "token": "nobody"})",
        R"({"say": "join", "card": {"token": 7}})"}) {
    story.send_text(text);
  }
  story.join(card("a"));
  EXPECT_EQ(story.state.phase, Phase::running);
}

}  // namespace
}  // namespace lockstep::launch
