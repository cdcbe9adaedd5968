#include "lockstep/program/shards.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/round.h"

namespace lockstep::program {

namespace {

using model::kParamAlignment;

// Where values may be cut: in front of each of these chunks, and behind the last.
std::vector<size_t> places_to_cut(const model::BlockLayout& layout) {
  std::vector<size_t> places;
  for (const model::Region& region : layout.regions) {
    size_t chunk = static_cast<size_t>(region.first_chunk);
    for (const int k : region.params) {
      const int64_t elements = layout.params[static_cast<size_t>(k)].spec.shape.numel();
      const auto chunks = static_cast<size_t>(base::divide_up(elements, kernels::kChunk));
      for (size_t c = 0; c < (region.whole ? 1 : chunks); ++c) places.push_back(chunk + c);
      chunk += chunks;
    }
  }
  return places;
}

std::vector<size_t> every_chunk(size_t chunks) {
  std::vector<size_t> places(chunks);
  std::iota(places.begin(), places.end(), size_t{0});
  return places;
}

// Borders between `parts` runs of chunks, as near to even as the places allow: indices into `chunks`.
std::vector<size_t> borders(const std::vector<kernels::Chunk>& chunks, std::vector<size_t> places,
                            int parts) {
  places.push_back(chunks.size());
  std::vector<int64_t> elements(chunks.size() + 1, 0);  // before chunk k
  for (size_t k = 0; k < chunks.size(); ++k) elements[k + 1] = elements[k] + chunks[k].count;
  std::vector<int64_t> before;  // each place
  for (const size_t k : places) before.push_back(elements[k]);
  std::vector<size_t> cuts(static_cast<size_t>(parts) + 1, 0);
  for (int p = 1; p <= parts; ++p) {
    const int64_t target = before.back() * p / parts;
    auto at = std::lower_bound(before.begin(), before.end(), target);
    if (at != before.begin() && target - *(at - 1) < *at - target) --at;
    cuts[static_cast<size_t>(p)] =
        std::max(cuts[static_cast<size_t>(p) - 1], places[static_cast<size_t>(at - before.begin())]);
  }
  return cuts;
}

// From border to border. Gaps between parameters fall to the shard before them; they are zero and stay so.
Span between(const std::vector<kernels::Chunk>& chunks, size_t from, size_t to, int64_t count) {
  const auto start = [&](size_t k) { return k == 0 ? 0 : k < chunks.size() ? chunks[k].begin : count; };
  return {start(from), start(to) - start(from)};
}

// A block's values of one run in as many pieces.
std::vector<Shard::Kept> cut(const model::BlockLayout& layout, model::Stored stored, int ranks) {
  const std::vector<kernels::Chunk> chunks = model::chunks_of(layout, stored);
  const std::vector<size_t> cuts = borders(
      chunks, stored == model::Stored::trained ? places_to_cut(layout) : every_chunk(chunks.size()), ranks);
  std::vector<Shard::Kept> pieces;
  for (size_t piece = 0; piece < static_cast<size_t>(ranks); ++piece) {
    pieces.push_back({.span = between(chunks, cuts[piece], cuts[piece + 1], layout.count(stored)),
                      .first_chunk = static_cast<int64_t>(cuts[piece]),
                      .chunks = static_cast<int64_t>(cuts[piece + 1] - cuts[piece])});
  }
  return pieces;
}

}  // namespace

std::vector<std::vector<Shard>> cut_into_shards(const std::vector<model::BlockLayout>& layouts, int ranks) {
  std::vector<std::vector<Shard>> shards(layouts.size());
  for (size_t b = 0; b < layouts.size(); ++b) {
    shards[b].resize(static_cast<size_t>(ranks));
    const std::vector<Shard::Kept> trained = cut(layouts[b], model::Stored::trained, ranks),
                                   frozen = cut(layouts[b], model::Stored::frozen, ranks),
                                   quantized = cut(layouts[b], model::Stored::quantized, ranks);
    for (size_t piece = 0; piece < static_cast<size_t>(ranks); ++piece) {
      Shard& shard = shards[b][(piece + b) % static_cast<size_t>(ranks)];
      shard.values = trained[piece].span;
      shard.first_chunk = trained[piece].first_chunk, shard.chunks = trained[piece].chunks;
      shard.frozen = frozen[piece];
      shard.quantized = quantized[piece];
    }
  }
  for (size_t b = 0; b < layouts.size(); ++b) {
    for (size_t r = 0; r < shards[b].size(); ++r) {
      Shard& shard = shards[b][r];
      shard.gradients.push_back(shard.values);
      for (const model::PlacedParam& param : layouts[b].params) {
        if (param.spec.holds_values() || param.spec.train.frozen) continue;
        const model::TiedTo owner = model::find_tied(layouts, param.spec);
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
  for (int k = 0; k < param; ++k) {
    const model::ParamSpec& spec = layout.params[static_cast<size_t>(k)].spec;
    slot += spec.holds_values() || spec.train.frozen ? 0 : 1;
  }
  return slot;
}

Span intersect(const Span& a, const Span& b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end(), b.end());
  return {begin, std::max<int64_t>(0, end - begin)};
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
