// Rendezvous of nodes that are only names: the leader's decisions, one row or story each.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "lockstep/launch/rendezvous/leader_testing.h"

namespace lockstep::launch {
namespace {

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

TEST(Leader, StartsWhenEveryoneHasCome) {
  Story story(nodes(2, 2));
  story.join(card("b", 1, 2));
  EXPECT_EQ(story.state.phase, Phase::rendezvous);
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
  EXPECT_EQ(story.state.phase, Phase::rendezvous);
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

TEST(Leader, ElasticRunsGoOnWithFewerAndMore) {
  Options options = nodes(1, 3, 1);
  options.last_call = Duration(30);
  options.node_timeout = Duration(60);
  Story story(options);
  story.join(card("a")), story.join(card("b"));
  EXPECT_EQ(story.state.phase, Phase::rendezvous) << "the last call is still on";
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

// Enough are there; the last call for more is as long as it says, and no longer than the rendezvous itself.
TEST(Leader, ALastCallEndsWithTheRendezvous) {
  for (const auto& [last_call, join_timeout, at] :
       {std::tuple(200, 1000, 200), std::tuple(1000, 200, 200), std::tuple(300, 300, 300)}) {
    SCOPED_TRACE(fmt::format("last call {} ms, join timeout {} ms", last_call, join_timeout));
    Options options = nodes(1, 2);
    options.last_call = Duration(last_call), options.join_timeout = Duration(join_timeout);
    Story story(options);
    story.join(card("a"));
    story.pass(at - 1);
    story.turn();
    EXPECT_EQ(story.state.phase, Phase::rendezvous);
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
  EXPECT_EQ(story.state.phase, Phase::rendezvous);
  story.pass(1);
  story.turn();
  EXPECT_EQ(story.state.phase, Phase::running);
}

// A rendezvous ends at its time limit, not before and not later; what only saves waits for less long.
TEST(Leader, ARendezvousHasABound) {
  Options options = nodes(2, 2, 3);
  options.join_timeout = Duration(600'000);
  Story story(options, true);
  story.join(card("a", 0));
  story.pass(599'999);
  story.turn();
  EXPECT_EQ(story.state.phase, Phase::rendezvous);
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
  EXPECT_EQ(saves.state.phase, Phase::rendezvous);
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
