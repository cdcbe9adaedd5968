#include "lockstep/model/layout.h"

#include <algorithm>
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

void append_chunks(std::vector<kernels::Chunk>& chunks, const PlacedParam& param, float decay) {
  const int64_t size = param.spec.shape.numel();
  for (int64_t begin = 0; begin < size; begin += kernels::kChunk) {
    const int64_t count = std::min(kernels::kChunk, size - begin);
    chunks.push_back({param.offset + begin, static_cast<int32_t>(count), decay, param.spec.train.rate});
  }
}

}  // namespace

BlockLayout layout_of(const Block& block) {
  std::vector<PlacedParam> trained, frozen, tied;
  const std::vector<ParamSpec> specs = block.params();
  for (size_t k = 0; k < specs.size(); ++k) {
    const PlacedParam param{specs[k], 0, static_cast<int>(k)};
    (!specs[k].holds_values() ? tied : specs[k].train.frozen ? frozen : trained).push_back(param);
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
  for (const PlacedParam& param : layout.params) {
    if (!param.spec.trained()) continue;
    const float given = param.spec.decay || decay_all ? weight_decay : 0.0f;
    append_chunks(chunks, param, param.spec.train.weight_decay.value_or(given));
  }
  return chunks;
}

std::vector<kernels::Chunk> frozen_chunks_of(const BlockLayout& layout) {
  std::vector<kernels::Chunk> chunks;
  for (const PlacedParam& param : layout.params) {
    if (param.spec.holds_values() && param.spec.train.frozen) append_chunks(chunks, param, 0);
  }
  return chunks;
}

TiedTo find_tied(const std::vector<BlockLayout>& layouts, const std::string& name) {
  for (size_t b = 0; b < layouts.size(); ++b) {
    for (const PlacedParam& param : layouts[b].params) {
      if (param.spec.holds_values() && param.spec.name == name) return {static_cast<int>(b), &param};
    }
  }
  LS_ASSERT(false, "tied to " + name + ", which no block has");
  return {};
}

}  // namespace lockstep::model
