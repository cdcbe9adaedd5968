#include "lockstep/plan/list_key.h"

#include <fmt/format.h>

#include <map>

#include "lockstep/program/strands.h"

namespace lockstep::plan {

using comm::Axis;

namespace {

// What the ranks of a copy come to together. Where they take turns: the stack of their sums after each round.
std::string copy_key(const program::DataRanks& ranks, int64_t strands) {
  if (!ranks.exact) return "";
  const program::Run all = ranks.assignment(strands).of_replica(ranks.replica);
  if (!ranks.round_robin()) return fmt::format(" of {}", program::nodes_of(strands, all).size());
  std::string key;
  program::Stack stack(strands);
  for (int64_t s = all.begin; s < all.end; ++s) {
    stack.push({s, s + 1});
    const bool ends = (s + 1 - all.begin) % ranks.shard == 0 || s + 1 == all.end;
    if (ends) key += fmt::format(" {}", stack.depth());
  }
  return key;
}

// What a rank adds up itself, and in which order: how often its stack of partial sums is joined after each
// strand.
std::string own_key(const program::DataRanks& ranks, int64_t strands) {
  const std::vector<int64_t> own = ranks.assignment(strands).of_rank(ranks.replica, ranks.shard_rank);
  std::string key = fmt::format("{}", own.size());
  if (!ranks.exact || ranks.round_robin()) return key;
  program::Stack stack(strands);
  for (const int64_t s : own) key += fmt::format(" {}", stack.push({s, s + 1}));
  return key;
}

program::DataRanks standing_at(const comm::Coordinate& at, program::DataRanks ranks) {
  ranks.replica = at[Axis::replica];
  ranks.shard_rank = at[Axis::shard];
  return ranks;
}

std::string joined(const comm::Coordinate& at, const std::string& own, const std::string& copy) {
  return fmt::format("stage {}, strands {}{}", at[Axis::pipeline], own, copy);
}

}  // namespace

// A copy's key takes as long as it has strands, so it is made once for all of its ranks.
Lists lists_of(const comm::Mesh& mesh, const program::DataRanks& data, int64_t strands) {
  Lists lists;
  std::map<std::string, int> number;
  std::map<int, std::string> copies, own;
  for (int r = 0; r < mesh.world(); ++r) {
    const comm::Coordinate at = comm::coordinate_of(mesh, r);
    const program::DataRanks ranks = standing_at(at, data);
    if (!copies.contains(ranks.replica)) copies[ranks.replica] = copy_key(ranks, strands);
    if (!own.contains(ranks.self())) own[ranks.self()] = own_key(ranks, strands);
    const auto [it, fresh] = number.try_emplace(joined(at, own[ranks.self()], copies[ranks.replica]),
                                                static_cast<int>(lists.first.size()));
    if (fresh) lists.first.push_back(r);
    lists.of.push_back(it->second);
  }
  return lists;
}

}  // namespace lockstep::plan
