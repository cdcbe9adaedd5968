#include "lockstep/program/nodes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace lockstep::program {
namespace {

struct Row {
  int replicas, shard, zero, per_node;
  int64_t strands;
  Among split;
  int near;
  bool node_first;
};

TEST(Nodes, SumFirstWhereTheTreeAllows) {
  const Row rows[] = {
      // zero 0: contiguous strands
      {4, 1, 0, 2, 4, Among::replica, 2, true},
      {8, 1, 0, 4, 8, Among::replica, 4, true},
      {8, 1, 0, 2, 16, Among::replica, 2, true},
      {6, 1, 0, 2, 6, Among::replica, 2, true},  // [0,4) and [4,6) of the tree
      {6, 1, 0, 2, 8, Among::replica, 2, true},  // 2 2 | 1 1 | 1 1 strands
      {6, 1, 0, 3, 6, Among::replica, 3, false},
      {6, 1, 0, 3, 8, Among::replica, 3, false},
      {12, 1, 0, 4, 12, Among::replica, 4, true},
      {4, 1, 0, 1, 4, Among::none, 1, false},  // one a node: everything crosses
      {4, 1, 0, 4, 4, Among::none, 1, false},  // all on one
      {4, 1, 0, 0, 4, Among::none, 1, false},  // nobody knows
      // one copy over several nodes
      {1, 4, 1, 2, 4, Among::shard, 2, true},
      {1, 4, 2, 2, 8, Among::shard, 2, true},
      {1, 4, 3, 2, 6, Among::shard, 2, false},  // the second round is not full
      {1, 6, 3, 2, 6, Among::shard, 2, true},
      {1, 6, 2, 3, 6, Among::shard, 3, false},
      {2, 4, 3, 2, 8, Among::shard, 2, true},
      // a copy in each node, or several
      {2, 2, 3, 2, 4, Among::none, 1, false},
      {4, 2, 3, 4, 8, Among::replica, 2, true},
      {4, 2, 1, 4, 8, Among::replica, 2, true},
  };
  for (const Row& row : rows) {
    DataRanks ranks{.replicas = row.replicas, .shard = row.shard, .zero = row.zero};
    ranks.per_node = row.per_node;
    const std::string why = resolve_nodes(ranks, row.strands);
    SCOPED_TRACE(fmt::format("{} x {}, zero {}, {} a node, {} strands: {}", row.replicas, row.shard, row.zero,
                             row.per_node, row.strands, why));
    EXPECT_EQ(ranks.split(), row.split);
    EXPECT_EQ(ranks.near(), row.near);
    EXPECT_EQ(ranks.node_first, row.node_first);
    EXPECT_EQ(why.empty(), row.node_first || row.split == Among::none);
    // A copy's ranks are neighbours: they share a node unless one of its borders lies among them.
    bool together = true;
    for (int rank = 0; rank < row.replicas * row.shard && row.per_node > 0; ++rank)
      together &= rank / row.per_node == rank / row.shard * row.shard / row.per_node;
    EXPECT_EQ(ranks.inside_node(Among::shard), together);
    EXPECT_EQ(ranks.inside_node(Among::data), row.per_node == 0 || row.per_node >= row.replicas * row.shard);
  }
}

// Both stages together sum every element of every gradient exactly once.
TEST(Nodes, PartsCoverEverythingOnce) {
  for (const int64_t elements : {1, 63, 4096, 100000}) {
    Program program;
    program.ranks = {.replicas = 6, .zero = 0};
    program.ranks.per_node = 2;
    program.strands = 6;
    program.buffers.push_back({.shape = {elements}});
    program.blocks.push_back({.gradients = {0}});
    ASSERT_EQ(resolve_nodes(program.ranks, 6), "");
    std::map<int64_t, int> covered;  // begin to count, of what each rank sums in the end
    for (program.ranks.replica = 0; program.ranks.replica < 6; ++program.ranks.replica) {
      const auto& r = program.ranks;
      const auto near = reduce_parts(program, 0, Among::intra_node, -1),
                 far = reduce_parts(program, 0, Among::inter_node, -1);
      ASSERT_EQ(near.spans.size(), 2u);
      ASSERT_EQ(far.spans.size(), 3u);
      EXPECT_EQ(near.all_elements(), elements);
      EXPECT_EQ(far.all_elements(), near.own_elements(reduce_self(r, Among::intra_node)));
      const Span own = far.spans[static_cast<size_t>(reduce_self(r, Among::inter_node))][0];
      const Span piece = near.spans[static_cast<size_t>(reduce_self(r, Among::intra_node))][0];
      EXPECT_GE(own.begin, piece.begin);
      EXPECT_LE(own.end(), piece.end());
      if (own.count > 0) covered[own.begin] += static_cast<int>(own.count);
    }
    int64_t at = 0;
    for (const auto& [begin, count] : covered) {
      EXPECT_EQ(begin, at);
      at += count;
    }
    EXPECT_EQ(at, elements);
  }
}

}  // namespace
}  // namespace lockstep::program
