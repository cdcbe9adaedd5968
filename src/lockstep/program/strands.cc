#include "lockstep/program/strands.h"

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"

namespace lockstep::program {

namespace {

int64_t half_of(int64_t count) {  // the largest power of two below count
  int64_t half = 1;
  while (half * 2 < count) half *= 2;
  return half;
}

void collect(const Run& node, const Run& wanted, std::vector<Run>& found) {
  if (wanted.end <= node.begin || node.end <= wanted.begin) return;
  if (wanted.begin <= node.begin && node.end <= wanted.end) {
    found.push_back(node);
    return;
  }
  const int64_t middle = node.begin + half_of(node.count());
  collect({node.begin, middle}, wanted, found);
  collect({middle, node.end}, wanted, found);
}

// Part k of n when `run` is shared out evenly; the first parts are the longer ones.
Run part_of(const Run& run, int64_t n, int64_t k) {
  const int64_t each = run.count() / n, more = run.count() % n;
  const int64_t begin = run.begin + k * each + (k < more ? k : more);
  return {begin, begin + each + (k < more ? 1 : 0)};
}

}  // namespace

bool joins(int64_t strands, const Run& left, const Run& right) {
  if (left.end != right.begin || left.count() < 1 || right.count() < 1) return false;
  Run node{0, strands};
  while (node.count() > 1) {
    const int64_t middle = node.begin + half_of(node.count());
    if (node.begin == left.begin && node.end == right.end) return middle == left.end;
    if (right.end <= middle) {
      node.end = middle;
    } else if (middle <= left.begin) {
      node.begin = middle;
    } else {
      return false;
    }
  }
  return false;
}

std::vector<Run> nodes_of(int64_t strands, const Run& run) {
  std::vector<Run> found;
  if (run.count() > 0) collect({0, strands}, run, found);
  return found;
}

int Stack::push(const Run& run) {
  LS_ASSERT(run.count() > 0 && (runs_.empty() || runs_.back().end == run.begin), "strands come in order");
  runs_.push_back(run);
  int joined = 0;
  while (runs_.size() > 1 && joins(strands_, runs_[runs_.size() - 2], runs_.back())) {
    runs_[runs_.size() - 2].end = runs_.back().end;
    runs_.pop_back();
    ++joined;
  }
  return joined;
}

Run StrandAssignment::of_replica(int replica) const { return part_of({0, strands}, replicas, replica); }

std::vector<int64_t> StrandAssignment::of_rank(int replica, int shard_rank) const {
  const Run all = of_replica(replica);
  std::vector<int64_t> mine;
  if (round_robin) {
    for (int64_t s = all.begin + shard_rank; s < all.end; s += shard) mine.push_back(s);
  } else {
    const Run part = part_of(all, shard, shard_rank);
    for (int64_t s = part.begin; s < part.end; ++s) mine.push_back(s);
  }
  return mine;
}

int64_t StrandAssignment::rounds(int replica) const {
  return base::divide_up(of_replica(replica).count(), shard);
}

int64_t StrandAssignment::in_round(int replica, int shard_rank, int64_t round) const {
  const Run all = of_replica(replica);
  const int64_t strand = all.begin + round * shard + shard_rank;
  return strand < all.end ? strand : -1;
}

}  // namespace lockstep::program
