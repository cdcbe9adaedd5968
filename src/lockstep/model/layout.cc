#include "lockstep/model/layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"

namespace lockstep::model {

namespace {

int64_t align(int64_t n) { return base::round_up(n, kParamAlignment); }

int64_t chunks_in(const ParamSpec& spec) { return base::divide_up(spec.shape.numel(), kernels::kChunk); }

std::string segment_of(const ParamSpec& spec) { return spec.key.substr(0, spec.key.find('.')); }

// Each in blocks of its own, and where it stands among its segment's values.
int64_t place_quantized(std::vector<PlacedParam> some, std::vector<PlacedParam>& into) {
  int64_t end = 0;
  std::map<std::string, int64_t> ends;  // of segments
  for (PlacedParam& param : some) {
    param.offset = end;
    end = align(end + param.spec.shape.numel());
    int64_t& inside = ends[segment_of(param.spec)];
    param.offset_in_segment = param.spec.joined ? inside : align(inside);
    inside = param.offset_in_segment + param.spec.shape.numel();
    into.push_back(std::move(param));
  }
  return end;
}

// One behind the other; returns where they end.
int64_t place(std::vector<PlacedParam> some, std::vector<PlacedParam>& into) {
  int64_t end = 0;
  for (PlacedParam& param : some) {
    param.offset = param.spec.joined ? end : align(end);
    end = param.offset + param.spec.shape.numel();
    into.push_back(std::move(param));
  }
  return align(end);
}

std::vector<Region> regions_of(const BlockLayout& layout) {
  std::vector<Region> regions;
  int64_t chunks = 0;
  for (size_t k = 0; k < layout.params.size(); ++k) {
    const ParamSpec& spec = layout.params[k].spec;
    if (!spec.trained()) continue;
    if (regions.empty() || regions.back().rule != spec.train.rule || regions.back().whole != spec.train.whole)
      regions.push_back({.rule = spec.train.rule,
                         .whole = spec.train.whole,
                         .begin = layout.params[k].offset,
                         .first_chunk = chunks,
                         .params = {}});
    Region& region = regions.back();
    region.params.push_back(static_cast<int>(k));
    region.count = align(layout.params[k].offset + spec.shape.numel()) - region.begin;
    region.chunks += chunks_in(spec);
    chunks += chunks_in(spec);
  }
  return regions;
}

// Where the first part of a parameter has its slots; parts of one parameter are found by its number.
class Slots {
 public:
  int64_t first_of(const PlacedParam& param) {
    const Cut& cut = param.spec.cut;
    const int64_t each = chunks_in(param.spec);
    const auto [known, fresh] = first_.try_emplace(param.index, end_);
    if (fresh) end_ += each * (cut.fixed ? cut.parts : 1);
    return known->second + (cut.fixed ? cut.part * each : 0);
  }
  int64_t end() const { return end_; }

 private:
  std::map<int, int64_t> first_;
  int64_t end_ = 0;
};

void append_chunks(std::vector<kernels::Chunk>& chunks, const PlacedParam& param, float decay,
                   int64_t first_slot) {
  const int64_t size = param.spec.shape.numel();
  for (int64_t begin = 0; begin < size; begin += kernels::kChunk) {
    const int64_t count = std::min(kernels::kChunk, size - begin);
    chunks.push_back({.begin = param.offset + begin,
                      .count = static_cast<int32_t>(count),
                      .weight_decay = decay,
                      .rate = param.spec.train.rate,
                      .slot = static_cast<int32_t>(first_slot + begin / kernels::kChunk)});
  }
}

}  // namespace

BlockLayout layout_of(const Block& block) {
  std::vector<PlacedParam> trained, frozen, quantized, tied;
  const std::vector<ParamSpec> specs = block.params();
  std::map<std::string, int> numbers;
  for (const ParamSpec& spec : specs) {
    const int number = numbers.try_emplace(spec.name, static_cast<int>(numbers.size())).first->second;
    const PlacedParam param{.spec = spec, .index = number};
    if (!spec.holds_values()) {
      tied.push_back(param);
      continue;
    }
    const Stored stored = stored_as(spec);
    (stored == Stored::trained ? trained : stored == Stored::frozen ? frozen : quantized).push_back(param);
  }
  std::stable_sort(trained.begin(), trained.end(), [](const PlacedParam& a, const PlacedParam& b) {
    return std::tuple(a.spec.train.rule, a.spec.train.whole) <
           std::tuple(b.spec.train.rule, b.spec.train.whole);
  });
  BlockLayout layout;
  layout.value_count = place(std::move(trained), layout.params);
  layout.frozen_count = place(std::move(frozen), layout.params);
  if (!quantized.empty()) layout.format = quantized[0].spec.train.format;
  layout.quantized_count = place_quantized(std::move(quantized), layout.params);
  int64_t end = layout.value_count;
  for (PlacedParam& param : tied) {
    param.offset = end;
    if (!param.spec.train.frozen) end = align(end + param.spec.shape.numel());
    layout.params.push_back(std::move(param));
  }
  layout.grad_count = end;
  layout.regions = regions_of(layout);
  Slots slots;
  for (const PlacedParam& param : layout.params) {
    if (param.spec.trained()) slots.first_of(param);
  }
  layout.slots = slots.end();
  return layout;
}

const PlacedParam& BlockLayout::find(const std::string& key) const {
  const auto it =
      std::find_if(params.begin(), params.end(), [&](const PlacedParam& p) { return p.spec.key == key; });
  LS_ASSERT(it != params.end(), "no parameter " + key);
  return *it;
}

std::vector<kernels::Chunk> chunks_of(const BlockLayout& layout, float weight_decay, bool decay_all) {
  std::vector<kernels::Chunk> chunks;
  Slots slots;
  for (const PlacedParam& param : layout.params) {
    if (!param.spec.trained()) continue;
    const float given = param.spec.decay || decay_all ? weight_decay : 0.0f;
    append_chunks(chunks, param, param.spec.train.weight_decay.value_or(given), slots.first_of(param));
  }
  return chunks;
}

std::vector<kernels::Chunk> chunks_of(const BlockLayout& layout, Stored stored) {
  std::vector<kernels::Chunk> chunks;
  for (const PlacedParam& param : layout.params) {
    if (param.spec.holds_values() && stored_as(param.spec) == stored)
      append_chunks(chunks, param, 0, static_cast<int64_t>(chunks.size()));
  }
  return chunks;
}

Stored stored_as(const ParamSpec& spec) {
  if (!spec.train.frozen) return Stored::trained;
  return spec.train.format == kernels::Quantized::none ? Stored::frozen : Stored::quantized;
}

int64_t BlockLayout::count(Stored stored) const {
  return stored == Stored::trained ? value_count : stored == Stored::frozen ? frozen_count : quantized_count;
}

int64_t dequantized_count(const BlockLayout& layout, const std::string& segment) {
  int64_t end = 0;
  for (const PlacedParam& param : layout.params) {
    const bool here = param.spec.holds_values() && stored_as(param.spec) == Stored::quantized;
    if (here && segment_of(param.spec) == segment)
      end = std::max(end, align(param.offset_in_segment + param.spec.shape.numel()));
  }
  return end;
}

TiedTo find_tied(const std::vector<BlockLayout>& layouts, const ParamSpec& tied) {
  for (size_t b = 0; b < layouts.size(); ++b) {
    for (const PlacedParam& param : layouts[b].params) {
      const bool same_part = !tied.cut.fixed || param.spec.cut.part == tied.cut.part;
      if (param.spec.holds_values() && param.spec.name == tied.tied_to && same_part)
        return {static_cast<int>(b), &param};
    }
  }
  LS_ASSERT(false, "tied to " + tied.tied_to + ", which no block has");
  return {};
}

}  // namespace lockstep::model
