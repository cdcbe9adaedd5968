#include "lockstep/program/shards.h"

#include <algorithm>

#include "lockstep/base/round.h"

namespace lockstep::program {

namespace {

using model::kParamAlignment;

// Borders between `parts` runs of chunks, as near to even as chunks allow: indices into `chunks`.
std::vector<size_t> borders(const std::vector<kernels::Chunk>& chunks, int parts) {
  std::vector<int64_t> before(chunks.size() + 1, 0);  // elements before chunk k
  for (size_t k = 0; k < chunks.size(); ++k) before[k + 1] = before[k] + chunks[k].count;
  std::vector<size_t> cuts(static_cast<size_t>(parts) + 1, 0);
  for (int p = 1; p <= parts; ++p) {
    const int64_t target = before.back() * p / parts;
    auto at = std::lower_bound(before.begin(), before.end(), target);
    if (at != before.begin() && target - *(at - 1) < *at - target) --at;
    cuts[static_cast<size_t>(p)] =
        std::max(cuts[static_cast<size_t>(p) - 1], static_cast<size_t>(at - before.begin()));
  }
  return cuts;
}

Span intersect(const Span& a, const Span& b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end(), b.end());
  return {begin, std::max<int64_t>(0, end - begin)};
}

}  // namespace

std::vector<std::vector<Shard>> cut_into_shards(const std::vector<model::BlockLayout>& layouts, int ranks) {
  std::vector<std::vector<Shard>> shards(layouts.size());
  for (size_t b = 0; b < layouts.size(); ++b) {
    shards[b].resize(static_cast<size_t>(ranks));
    const std::vector<kernels::Chunk> chunks = model::chunks_of(layouts[b], 0, false);
    const std::vector<size_t> cuts = borders(chunks, ranks);
    for (int piece = 0; piece < ranks; ++piece) {
      Shard& shard = shards[b][(static_cast<size_t>(piece) + b) % static_cast<size_t>(ranks)];
      const size_t from = cuts[static_cast<size_t>(piece)], to = cuts[static_cast<size_t>(piece) + 1];
      shard.first_chunk = static_cast<int64_t>(from);
      shard.chunks = static_cast<int64_t>(to - from);
      // Gaps between parameters fall to the shard before them; they are zero and stay so.
      const auto start = [&](size_t k) {
        return k == 0 ? 0 : k < chunks.size() ? chunks[k].begin : layouts[b].value_count;
      };
      shard.values = {start(from), start(to) - start(from)};
    }
  }
  for (size_t b = 0; b < layouts.size(); ++b) {
    for (size_t r = 0; r < shards[b].size(); ++r) {
      Shard& shard = shards[b][r];
      shard.gradients.push_back(shard.values);
      for (const model::PlacedParam& param : layouts[b].params) {
        if (param.spec.tied_to.empty()) continue;
        const model::TiedTo owner = model::find_tied(layouts, param.spec.tied_to);
        const Span held = intersect(shards[static_cast<size_t>(owner.block)][r].values,
                                    {owner.param->offset, owner.param->spec.shape.numel()});
        shard.gradients.push_back(
            {held.count > 0 ? param.offset + held.begin - owner.param->offset : param.offset, held.count});
      }
      for (const Span& span : shard.gradients) {
        shard.offsets.push_back(shard.gradient_count);
        shard.gradient_count = base::round_up(shard.gradient_count + span.count, kParamAlignment);
      }
    }
  }
  return shards;
}

size_t tied_slot(const model::BlockLayout& layout, int param) {
  size_t slot = 1;  // behind the values
  for (int k = 0; k < param; ++k) slot += layout.params[static_cast<size_t>(k)].spec.tied_to.empty() ? 0 : 1;
  return slot;
}

std::vector<Span> cut_evenly(int64_t count, int parts) {
  std::vector<Span> spans;
  for (int p = 0; p < parts; ++p) {
    const auto border = [&](int64_t k) {
      return k == parts ? count : std::min(count, count * k / parts / kParamAlignment * kParamAlignment);
    };
    spans.push_back({border(p), border(p + 1) - border(p)});
  }
  return spans;
}

}  // namespace lockstep::program
