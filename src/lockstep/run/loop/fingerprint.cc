#include "lockstep/run/loop/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace lockstep::run {

std::vector<int> odd_ones_out(const std::vector<int>& classes, const std::vector<uint64_t>& hashes) {
  std::map<int, std::map<uint64_t, std::vector<int>>> seen;  // class, hash: ranks
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

std::string compare_copies(const Session& session, int64_t step) {
  const Ranks& ranks = *session.ranks;
  const program::DataRanks& layout = session.plan.layout.ranks;
  if (ranks.alone() || (session.parameters->holds_shares() && layout.replicas == 1)) return "";
  std::vector<uint64_t> hashes(static_cast<size_t>(ranks.size()), 0);
  hashes[static_cast<size_t>(ranks.rank())] = session.parameters->held_hash();
  hashes = ranks.sum(std::move(hashes));
  std::vector<int> classes(hashes.size(), 0);
  if (session.parameters->holds_shares()) {
    for (size_t r = 0; r < classes.size(); ++r) classes[r] = static_cast<int>(r) % layout.shard;
  }
  const std::vector<int> odd = odd_ones_out(classes, hashes);
  if (odd.empty()) return "";
  const bool decided = odd.size() * 2 < hashes.size();
  return fmt::format(
      "after step {} the weights of rank{} {} differ from the other replicas{}: a bit flipped in memory, on "
      "a device or on a link",
      step, odd.size() == 1 ? "" : "s", fmt::join(odd, " "),
      decided ? "" : " (no majority to tell which is right)");
}

}  // namespace lockstep::run
