// Strands: which rank computes which, and the one tree over which they are summed.
//
// The tree over [0, S) is split at the largest power of two below n, again and again. Whoever adds may only
// join two neighbours that are the two halves of a node of that tree; then every order of work gives the same
// bits. `Stack` keeps the partial sums of strands that come in order, as a binary counter does.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::program {

struct Run {  // strands [begin, end)
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
  bool operator==(const Run&) const = default;
};

// Whether [begin, middle) and [middle, end) are the halves of a node of the tree over [0, strands).
bool joins(int64_t strands, const Run& left, const Run& right);

// The fewest nodes of the tree that make up [begin, end), in order.
std::vector<Run> nodes_of(int64_t strands, const Run& run);

// Partial sums while runs are pushed in order.
class Stack {
 public:
  explicit Stack(int64_t strands) : strands_(strands) {}
  // Pushes a node; returns how many times the top two were joined after it.
  int push(const Run& run);
  const std::vector<Run>& runs() const { return runs_; }
  int depth() const { return static_cast<int>(runs_.size()); }

 private:
  int64_t strands_;
  std::vector<Run> runs_;
};

// How strands are assigned to the data ranks: replicas take contiguous runs; inside one, ranks take
// contiguous runs, or round-robin (strand begin + j * shard + r belongs to rank r) where gradients are
// sharded.
struct StrandAssignment {
  int64_t strands = 1;
  int replicas = 1, shard = 1;
  bool round_robin = false;
  Run of_replica(int replica) const;
  std::vector<int64_t> of_rank(int replica, int shard_rank) const;  // in the order in which they are computed
  int64_t rounds(int replica) const;                                // most strands of one of its ranks
  // Round-robin: the strand that `shard_rank` works on in `round`; -1 when it has none.
  int64_t in_round(int replica, int shard_rank, int64_t round) const;
};

}  // namespace lockstep::program
