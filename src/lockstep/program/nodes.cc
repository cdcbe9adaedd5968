#include "lockstep/program/nodes.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::program {

Among DataRanks::split() const {
  if (per_node <= 1 || per_node >= width()) return Among::none;
  if (sharded() && shard > per_node) return shard % per_node == 0 ? Among::shard : Among::none;
  return per_node % shard == 0 && per_node > shard ? Among::replica : Among::none;
}

int DataRanks::near() const {
  const Among group = split();
  return group == Among::shard ? per_node : group == Among::replica ? per_node / shard : 1;
}

bool DataRanks::inside_node(Among among) const {
  if (among == Among::intra_node || per_node == 0 || per_node >= width()) return true;
  return among == Among::shard && per_node % shard == 0;
}

Run node_strands(const DataRanks& ranks, int64_t strands, int node, int64_t round) {
  const StrandAssignment assignment = ranks.assignment(strands);
  const int near = ranks.near(), first = node * near, last = first + near - 1;
  if (ranks.split() == Among::replica)
    return {assignment.of_replica(first).begin, assignment.of_replica(last).end};
  if (round >= 0) {
    const int64_t begin = assignment.in_round(ranks.replica, first, round),
                  end = assignment.in_round(ranks.replica, last, round);
    return end < 0 ? Run{} : Run{begin, end + 1};
  }
  const auto from = assignment.of_rank(ranks.replica, first), to = assignment.of_rank(ranks.replica, last);
  return from.empty() || to.empty() ? Run{} : Run{from.front(), to.back() + 1};
}

std::string resolve_nodes(DataRanks& ranks, int64_t strands) {
  ranks.node_first = false;
  const Among group = ranks.split();
  if (!ranks.exact || group == Among::none) return "";
  const int nodes = (group == Among::shard ? ranks.shard : ranks.replicas) / ranks.near();
  const StrandAssignment assignment = ranks.assignment(strands);
  DataRanks there = ranks;
  const int copies = group == Among::shard ? ranks.replicas : 1;
  for (there.replica = 0; there.replica < copies; ++there.replica) {
    const int64_t rounds =
        group == Among::shard && ranks.round_robin() ? assignment.rounds(there.replica) : 0;
    for (int64_t round = rounds > 0 ? 0 : -1; round < rounds; ++round) {
      for (int node = 0; node < nodes; ++node) {
        const Run run = node_strands(there, strands, node, round);
        if (nodes_of(strands, run).size() == 1) continue;
        return run.count() == 0
                   ? fmt::format("{} strands do not fill every round", strands)
                   : fmt::format(
                         "strands {} to {} of a node's ranks do not form one subtree of the {} strands",
                         run.begin, run.end - 1, strands);
      }
    }
  }
  ranks.node_first = true;
  return "";
}

int reduce_self(const DataRanks& ranks, Among among) {
  switch (among) {
    case Among::shard:
      return ranks.shard_rank;
    case Among::intra_node:
      return ranks.seat_of_split() % ranks.near();
    case Among::inter_node:
      return ranks.seat_of_split() / ranks.near();
    default:
      return ranks.replica;
  }
}

namespace {

int group_size(const DataRanks& ranks, Among among) {
  const int split = ranks.split() == Among::shard ? ranks.shard : ranks.replicas;
  return among == Among::shard        ? ranks.shard
         : among == Among::intra_node ? ranks.near()
         : among == Among::inter_node ? split / ranks.near()
                                      : ranks.replicas;
}

// Of a group that is not split: what its rank `seat` gives.
std::vector<Run> given_by(const Program& program, Among group, int seat, int round) {
  const DataRanks& r = program.ranks;
  const StrandAssignment assignment = r.assignment(program.strands);
  if (group == Among::replica) return nodes_of(program.strands, assignment.of_replica(seat));
  if (round < 0) return own_nodes(assignment, r.replica, seat);
  const int64_t s = assignment.in_round(r.replica, seat, round);
  return s >= 0 ? std::vector<Run>{{s, s + 1}} : std::vector<Run>{};
}

// What replicas sum together: whole gradients, or one share of them.
std::vector<Span> summed_by_replicas(const Program& program, int block) {
  const DataRanks& r = program.ranks;
  if (!r.sharded()) {
    const int gradient = program.blocks[static_cast<size_t>(block)].gradients[0];
    return {{0, program.buffers[static_cast<size_t>(gradient)].shape.numel()}};
  }
  const Shard& own = program.own_shard(block);
  return r.round_robin() ? std::vector<Span>{{0, own.gradient_count}} : own.gradients;
}

void append(std::vector<Span>& to, const std::vector<Span>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

Span moved(const Span& part, int64_t by) { return {part.begin + by, part.count}; }

}  // namespace

std::vector<std::vector<Run>> reduce_runs(const Program& program, Among among, int round) {
  const DataRanks& r = program.ranks;
  std::vector<std::vector<Run>> runs;
  for (int q = 0; q < group_size(r, among); ++q) {
    if (among == Among::inter_node) {
      const bool in_round = r.split() == Among::shard;
      runs.push_back({node_strands(r, program.strands, q, in_round ? round : -1)});
    } else if (among == Among::intra_node) {
      const int first = r.seat_of_split() / r.near() * r.near();
      runs.push_back(given_by(program, r.split(), first + q, r.split() == Among::shard ? round : -1));
    } else {
      runs.push_back(given_by(program, among, q, round));
    }
  }
  return runs;
}

ReduceParts reduce_parts(const Program& program, int block, Among among, int round) {
  const DataRanks& r = program.ranks;
  const int size = group_size(r, among), self = reduce_self(r, among), near = r.near();
  const bool staged = among == Among::intra_node || among == Among::inter_node;  // one of two stages
  ReduceParts parts;
  parts.spans.resize(static_cast<size_t>(size));
  if (among == Among::shard || (staged && r.split() == Among::shard)) {
    const std::vector<Shard>& shares = program.shards[static_cast<size_t>(block)];
    const int seat = r.shard_rank % near;
    for (int q = 0; q < r.shard; ++q) {
      const int to = among == Among::shard ? q : among == Among::intra_node ? q % near : q / near;
      if (among == Among::inter_node && q % near != seat) continue;
      append(parts.spans[static_cast<size_t>(to)], shares[static_cast<size_t>(q)].gradients);
    }
    for (const Span& span : parts.spans[static_cast<size_t>(self)]) parts.out.push_back(span.begin);
    // Where strands are dealt round-robin, the stack of sums holds only this rank's shard.
    if (round >= 0 && among != Among::intra_node) parts.out = program.own_shard(block).offsets;
    return parts;
  }
  // In even parts; in two stages, each node's ranks first cut it among themselves, then the nodes each piece.
  for (const Span& whole : summed_by_replicas(program, block)) {
    std::vector<Span> cut = cut_evenly(whole.count, among == Among::inter_node ? near : size);
    int64_t begin = whole.begin;
    if (among == Among::inter_node) {
      const Span piece = cut[static_cast<size_t>(reduce_self(r, Among::intra_node))];
      cut = cut_evenly(piece.count, size);
      begin += piece.begin;
    }
    for (size_t q = 0; q < cut.size(); ++q) parts.spans[q].push_back(moved(cut[q], begin));
  }
  for (const Span& span : parts.spans[static_cast<size_t>(self)]) parts.out.push_back(span.begin);
  return parts;
}

int64_t ReduceParts::own_elements(int self) const {
  int64_t elements = 0;
  for (const Span& span : spans[static_cast<size_t>(self)]) elements += span.count;
  return elements;
}

int64_t ReduceParts::all_elements() const {
  int64_t elements = 0;
  for (size_t q = 0; q < spans.size(); ++q) elements += own_elements(static_cast<int>(q));
  return elements;
}

std::vector<Run> own_nodes(const StrandAssignment& assignment, int replica, int shard_rank) {
  const std::vector<int64_t> strands = assignment.of_rank(replica, shard_rank);
  return strands.empty() ? std::vector<Run>{}
                         : nodes_of(assignment.strands, {strands.front(), strands.back() + 1});
}

}  // namespace lockstep::program
