#include "lockstep/program/owners.h"

#include <algorithm>

namespace lockstep::program {

std::vector<Owned> owned_parameters(const model::BlockLayout& layout, const model::Region& region,
                                    const Span& held, const model::Parts& parts, int block) {
  std::vector<Owned> all;
  if (!region.whole || parts.tensor == 1) return all;
  std::vector<int64_t> has(static_cast<size_t>(parts.tensor), 0);
  for (const int k : region.params) {
    const model::PlacedParam& param = layout.params[static_cast<size_t>(k)];
    const int64_t elements = param.spec.shape.numel();
    const bool here = param.offset >= held.begin && param.offset + elements <= held.end();
    if (!param.spec.cut.cuts() || !here) continue;
    int owner = block % parts.tensor;
    for (int step = 1; step < parts.tensor; ++step) {
      const int other = (block + step) % parts.tensor;
      if (has[static_cast<size_t>(other)] < has[static_cast<size_t>(owner)]) owner = other;
    }
    Owned one{.param = k,
              .owner = owner,
              .at = has[static_cast<size_t>(owner)],
              .whole = whole_shape(param.spec.cut, param.spec.shape),
              .part_elements = elements};
    has[static_cast<size_t>(owner)] += one.whole.numel();
    all.push_back(one);
  }
  return all;
}

int64_t owned_elements(const std::vector<Owned>& all, int owner) {
  int64_t elements = 0;
  for (const Owned& one : all) elements += one.owner == owner ? one.whole.numel() : 0;
  return elements;
}

int64_t largest_owned(const std::vector<Owned>& all, int owner) {
  int64_t elements = 0;
  for (const Owned& one : all) elements = std::max(elements, one.owner == owner ? one.whole.numel() : 0);
  return elements;
}

std::vector<std::vector<const Owned*>> rounds_of(const std::vector<Owned>& all, int ranks) {
  std::vector<std::vector<const Owned*>> rounds;
  std::vector<size_t> next(static_cast<size_t>(ranks), 0);
  for (const Owned& one : all) {
    const size_t round = next[static_cast<size_t>(one.owner)]++;
    if (round == rounds.size()) rounds.emplace_back(static_cast<size_t>(ranks), nullptr);
    rounds[round][static_cast<size_t>(one.owner)] = &one;
  }
  return rounds;
}

}  // namespace lockstep::program
