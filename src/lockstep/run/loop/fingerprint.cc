#include "lockstep/run/loop/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lockstep/base/hash.h"

namespace lockstep::run {

std::vector<int> odd_ones_out(const std::vector<uint64_t>& classes, const std::vector<uint64_t>& hashes) {
  std::map<uint64_t, std::map<uint64_t, std::vector<int>>> seen;  // class, hash: ranks
  for (size_t r = 0; r < hashes.size(); ++r) seen[classes[r]][hashes[r]].push_back(static_cast<int>(r));
  std::vector<int> odd;
  for (const auto& [which, by_hash] : seen) {
    if (by_hash.size() == 1) continue;
    size_t all = 0;
    for (const auto& [hash, ranks] : by_hash) all += ranks.size();
    for (const auto& [hash, ranks] : by_hash) {
      if (ranks.size() * 2 <= all) odd.insert(odd.end(), ranks.begin(), ranks.end());
    }
  }
  std::sort(odd.begin(), odd.end());
  return odd;
}

namespace {

// Which elements of which parameters this rank holds: of its stage, its tensor part, its shard.
uint64_t what_is_held(const Session& session) {
  std::string all;
  for (const Parameters::Named& one : session.parameters->named()) {
    const Parameters::Held& held = one.master;
    all += fmt::format("{} part {} of {} from {} bytes {};", one.name, one.cut.part, one.cut.parts,
                       held.first, held.values.bytes());
  }
  return base::hash_text(all);
}

std::vector<uint64_t> of_all_ranks(const Ranks& ranks, uint64_t mine) {
  std::vector<uint64_t> all(static_cast<size_t>(ranks.size()), 0);
  all[static_cast<size_t>(ranks.rank())] = mine;
  return ranks.sum(std::move(all));
}

}  // namespace

std::string compare_copies(const Session& session, int64_t step) {
  const Ranks& ranks = *session.ranks;
  const program::DataRanks& layout = session.plan.layout.ranks;
  if (ranks.alone() || (session.parameters->holds_shares() && layout.replicas == 1)) return "";
  const std::vector<uint64_t> hashes = of_all_ranks(ranks, session.parameters->held_hash());
  const std::vector<uint64_t> classes = of_all_ranks(ranks, what_is_held(session));
  const std::vector<int> odd = odd_ones_out(classes, hashes);
  if (odd.empty()) return "";
  const auto outvoted = [&](int one) {
    for (int r = 0; r < ranks.size(); ++r) {
      const bool same = classes[static_cast<size_t>(r)] == classes[static_cast<size_t>(one)];
      if (same && std::find(odd.begin(), odd.end(), r) == odd.end()) return true;
    }
    return false;
  };
  const bool decided = std::all_of(odd.begin(), odd.end(), outvoted);
  return fmt::format(
      "after step {} the weights of rank{} {} differ from the other replicas{}: a bit flipped in memory, on "
      "a device or on a link",
      step, odd.size() == 1 ? "" : "s", fmt::join(odd, " "),
      decided ? "" : " (no majority to tell which is right)");
}

}  // namespace lockstep::run
