// What the ranks of a second node are told: numbers that count on from the first node's.
#include "lockstep/launch/process/rank_environment.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

TEST(RankEnvironment, CountsOnFromTheNodesBefore) {
  Options options;
  options.role = "trainer", options.run_id = "job", options.max_restarts = 3;
  State state;
  state.master_addr = "n1", state.master_port = 29400, state.restarts = 1;
  NodePlace place;
  place.node = 1, place.first_rank = 6, place.role_rank = 4,
  place.role_world = 6;  // two ranks before have another role
  RankFacts facts;
  facts.options = &options, facts.state = &state, facts.place = &place;
  facts.seat = {.rank = 7, .world = 8, .local_rank = 1, .local_world = 2, .node = 1, .nodes = 2};
  facts.error_file = "/tmp/error";
  const std::vector<std::string> told =
      rank_environment({"HOME=/root", "RANK=99", "OMP_NUM_THREADS=5"}, facts);
  for (const char* expected :
       {"HOME=/root", "RANK=7", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1",
        "GROUP_WORLD_SIZE=2", "ROLE_NAME=trainer", "ROLE_RANK=5", "ROLE_WORLD_SIZE=6", "MASTER_ADDR=n1",
        "MASTER_PORT=29400", "TORCHELASTIC_RUN_ID=job", "TORCHELASTIC_RESTART_COUNT=1",
        "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_ERROR_FILE=/tmp/error", "OMP_NUM_THREADS=5"}) {
    EXPECT_EQ(std::count(told.begin(), told.end(), expected), 1) << expected;
  }
}

}  // namespace
}  // namespace lockstep::launch
