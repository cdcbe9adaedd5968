// Nodes: a reduction over several machines sums inside each of them first, so that one partial sum of a node
// crosses instead of one of each rank.
//
// It gives the same bits as any other order where the strands of each node are one node of the tree; where
// they are not (three ranks a node, say), all ranks meet at once, and resolve_nodes() says why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/program/program.h"

namespace lockstep::program {

// Decides node_first. Returns why it cannot be, where ranks stand on several nodes with several on each;
// empty: it is so, or there is nothing to decide.
std::string resolve_nodes(DataRanks& ranks, int64_t strands);

// The strands of node `node` (of those that the split group spans); with turns, in that round. Empty where a
// rank of the node has none.
Run node_strands(const DataRanks& ranks, int64_t strands, int node, int64_t round);

// The partial sums that each rank of the group gives to a reduction; `round` -1 where strands take no turns.
std::vector<std::vector<Run>> reduce_runs(const Program& program, Among among, int round);

// Who sums what of one block's gradients, in elements of what the ranks give.
struct ReduceParts {
  std::vector<std::vector<Span>> spans;  // [rank of the group]
  std::vector<int64_t> out;              // where each of this rank's spans starts in the sums
  int64_t own_elements(int self) const;
  int64_t all_elements() const;
};
ReduceParts reduce_parts(const Program& program, int block, Among among, int round);

// This rank's number in the group of a reduction.
int reduce_self(const DataRanks& ranks, Among among);

// The partial sums with which a rank of contiguous strands comes to the reduction.
std::vector<Run> own_nodes(const StrandAssignment& assignment, int replica, int shard_rank);

}  // namespace lockstep::program
