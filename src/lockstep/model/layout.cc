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
  std::vector<PlacedParam> trained, frozen, tied;
  const std::vector<ParamSpec> specs = block.params();
  std::map<std::string, int> numbers;
  for (const ParamSpec& spec : specs) {
    const int number = numbers.try_emplace(spec.name, static_cast<int>(numbers.size())).first->second;
    (!spec.holds_values() ? tied : spec.train.frozen ? frozen : trained).push_back({spec, 0, number});
  }
  std::stable_sort(trained.begin(), trained.end(), [](const PlacedParam& a, const PlacedParam& b) {
    return std::tuple(a.spec.train.rule, a.spec.train.whole) <
           std::tuple(b.spec.train.rule, b.spec.train.whole);
  });
  BlockLayout layout;
  layout.value_count = place(std::move(trained), layout.params);
  layout.frozen_count = place(std::move(frozen), layout.params);
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

std::vector<kernels::Chunk> frozen_chunks_of(const BlockLayout& layout) {
  std::vector<kernels::Chunk> chunks;
  for (const PlacedParam& param : layout.params) {
    if (param.spec.holds_values() && param.spec.train.frozen)
      append_chunks(chunks, param, 0, static_cast<int64_t>(chunks.size()));
  }
  return chunks;
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
