#include "lockstep/data/documents/packing.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/data/permutation.h"

namespace lockstep::data {

Packing::Packing(std::span<const int64_t> lengths, const Room& room, uint64_t seed) {
  if (lengths.empty()) return;
  const KeyedPermutation order(lengths.size(), seed, 0);
  std::vector<std::vector<int64_t>> samples;
  std::map<int64_t, std::vector<size_t>> open;  // by the space that is left
  for (uint64_t i = 0; i < lengths.size(); ++i) {
    const auto document = static_cast<int64_t>(order(i));
    const int64_t length = lengths[static_cast<size_t>(document)];
    LS_ASSERT(length > 0 && length <= room.tokens);
    const auto best = open.lower_bound(length);
    int64_t left = room.tokens;
    size_t sample = samples.size();
    if (best == open.end()) {
      samples.emplace_back();
    } else {
      left = best->first;
      sample = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) open.erase(best);
    }
    samples[sample].push_back(document);
    const bool full = static_cast<int64_t>(samples[sample].size()) == room.documents;
    if (left > length && !full) open[left - length].push_back(sample);
  }
  for (const std::vector<int64_t>& sample : samples) {
    documents_.insert(documents_.end(), sample.begin(), sample.end());
    ends_.push_back(static_cast<int64_t>(documents_.size()));
  }
}

std::span<const int64_t> Packing::documents(int64_t sample) const {
  const size_t at = static_cast<size_t>(sample), begin = sample == 0 ? 0 : static_cast<size_t>(ends_[at - 1]);
  return std::span(documents_).subspan(begin, static_cast<size_t>(ends_[at]) - begin);
}

}  // namespace lockstep::data
