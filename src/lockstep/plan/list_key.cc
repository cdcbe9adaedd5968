#include "lockstep/plan/list_key.h"

#include <fmt/format.h>

#include <map>

#include "lockstep/program/strands.h"

namespace lockstep::plan {

using comm::Axis;

namespace {

// What a rank adds up, and in which order: how often the stack of partial sums is joined after each strand,
// and what the group's sums come to.
std::string strand_key(const program::DataRanks& ranks, int64_t strands) {
  const program::Deal deal = ranks.deal(strands);
  const std::vector<int64_t> own = deal.of_rank(ranks.replica, ranks.shard_rank);
  std::string key = fmt::format("{}", own.size());
  if (!ranks.exact) return key;
  if (ranks.turns()) {  // the stack of the group after each round
    const program::Run replica = deal.of_replica(ranks.replica);
    program::Stack stack(strands);
    for (int64_t s = replica.begin; s < replica.end; ++s) {
      stack.push({s, s + 1});
      const bool ends = (s + 1 - replica.begin) % ranks.shard == 0 || s + 1 == replica.end;
      if (ends) key += fmt::format(" {}", stack.depth());
    }
    return key;
  }
  program::Stack stack(strands);
  for (const int64_t s : own) key += fmt::format(" {}", stack.push({s, s + 1}));
  const size_t sums = program::nodes_of(strands, deal.of_replica(ranks.replica)).size();
  return key + fmt::format(" of {}", sums);
}

}  // namespace

std::string list_key(const comm::Mesh& mesh, int rank, const program::DataRanks& data, int64_t strands) {
  const comm::Coordinate at = comm::coordinate_of(mesh, rank);
  program::DataRanks ranks = data;
  ranks.replica = at[Axis::replica];
  ranks.shard_rank = at[Axis::shard];
  return fmt::format("stage {}, strands {}", at[Axis::pipeline], strand_key(ranks, strands));
}

Lists lists_of(const comm::Mesh& mesh, const program::DataRanks& data, int64_t strands) {
  Lists lists;
  std::map<std::string, int> number;
  for (int r = 0; r < mesh.world(); ++r) {
    const auto [it, fresh] =
        number.try_emplace(list_key(mesh, r, data, strands), static_cast<int>(lists.first.size()));
    if (fresh) lists.first.push_back(r);
    lists.of.push_back(it->second);
  }
  return lists;
}

}  // namespace lockstep::plan
