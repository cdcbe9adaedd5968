// Which node a rank is on, where nodes have different numbers of ranks.
#include "lockstep/launch/rendezvous/round_state.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(State, RanksAreOnTheirNodes) {
  State state;
  for (const int ranks : {2, 1, 3}) {
    NodePlace place;
    place.card.ranks = ranks, place.node = static_cast<int>(state.nodes.size()),
    place.first_rank = state.world;
    state.nodes.push_back(place);
    state.world += ranks;
  }
  const int nodes[] = {0, 0, 1, 2, 2, 2};
  for (int rank = 0; rank < 6; ++rank) {
    ASSERT_NE(state.place_of_rank(rank), nullptr) << rank;
    EXPECT_EQ(state.place_of_rank(rank)->node, nodes[rank]) << rank;
  }
  for (const int rank : {-1, 6}) EXPECT_EQ(state.place_of_rank(rank), nullptr) << rank;
}

}  // namespace
}  // namespace lockstep::launch
