// What each framework's ranks are told, on one node and on two with different numbers of ranks.
#include "lockstep/launch/process/frameworks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/launch/options.h"

namespace lockstep::launch {
namespace {

// Nodes of two ranks and of one.
State two_nodes() {
  State state;
  state.world = 3, state.master_addr = "10.0.0.1", state.master_port = 21000;
  NodePlace first, second;
  first.card.address = "10.0.0.1", first.card.master_port = 21000, first.card.ranks = 2;
  second.card.address = "fe80::2", second.card.master_port = 22000, second.card.ranks = 1;
  second.node = 1, second.first_rank = 2;
  state.nodes = {first, second};
  return state;
}

RankFacts facts_of(const State& state, const Options& options, int rank) {
  RankFacts facts;
  const NodePlace& place = state.nodes[rank == 2 ? 1 : 0];
  facts.options = &options, facts.state = &state, facts.place = &place;
  facts.seat.rank = rank, facts.seat.world = 3, facts.seat.node = place.node, facts.seat.nodes = 2;
  facts.seat.local_rank = rank - place.first_rank, facts.seat.local_world = place.card.ranks;
  return facts;
}

TEST(Frameworks, TellEachRankWhoItIs) {
  struct Row {
    const char* framework;
    int rank;
    std::vector<std::string> sets;
    const char* leaves;  // begins no variable
  };
  const Row rows[] = {
      {"jax",
       1,
       {"JAX_COORDINATOR_ADDRESS=10.0.0.1:21000", "JAX_NUM_PROCESSES=3", "JAX_PROCESS_ID=1",
        "JAX_LOCAL_DEVICE_IDS=1", "RANK=1"},
       "TF_CONFIG"},
      {"jax", 2, {"JAX_PROCESS_ID=2"}, "JAX_LOCAL_DEVICE_IDS"},
      {"deepspeed", 2, {"LOCAL_SIZE=1", "CROSS_RANK=1", "CROSS_SIZE=2", "LOCAL_RANK=0"}, "JAX_"},
      {"tensorflow",
       2,
       {R"(TF_CONFIG={"cluster":{"worker":["10.0.0.1:21000","10.0.0.1:21001","[fe80::2]:22000"]},)"
        R"("task":{"index":2,"type":"worker"}})"},
       "JAX_"},
      {"horovod",
       1,
       {"HOROVOD_RANK=1", "HOROVOD_SIZE=3", "HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_SIZE=2",
        "HOROVOD_CROSS_RANK=0", "HOROVOD_CROSS_SIZE=1", "HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT=21000", "HOROVOD_CONTROLLER=gloo", "HOROVOD_HOSTNAME=10.0.0.1"},
       "TF_CONFIG"},
      {"horovod",
       2,
       {"HOROVOD_RANK=2", "HOROVOD_LOCAL_RANK=0", "HOROVOD_CROSS_RANK=1", "HOROVOD_CROSS_SIZE=2",
        "HOROVOD_HOSTNAME=fe80::2"},
       "JAX_"},
      {"", 2, {"RANK=2", "MASTER_ADDR=10.0.0.1"}, "TF_CONFIG"},
  };
  const State state = two_nodes();
  for (const Row& row : rows) {
    SCOPED_TRACE(row.framework);
    Options options;
    options.framework = row.framework;
    const std::vector<std::string> variables = rank_environment({}, facts_of(state, options, row.rank));
    for (const std::string& wanted : row.sets)
      EXPECT_NE(std::find(variables.begin(), variables.end(), wanted), variables.end()) << wanted;
    for (const std::string& one : variables) EXPECT_FALSE(one.starts_with(row.leaves)) << one;
  }
}

TEST(Frameworks, WhatTheUserSaysAboutDevicesStays) {
  const State state = two_nodes();
  Options options;
  options.framework = "jax";
  const std::vector<std::string> variables =
      rank_environment({"JAX_LOCAL_DEVICE_IDS=5"}, facts_of(state, options, 1));
  EXPECT_EQ(std::count(variables.begin(), variables.end(), "JAX_LOCAL_DEVICE_IDS=5"), 1);
}

}  // namespace
}  // namespace lockstep::launch
