#include "lockstep/model/layout.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"

namespace lockstep::model {

namespace {
int64_t align(int64_t n) { return base::round_up(n, kParamAlignment); }
}  // namespace

BlockLayout layout_of(const Block& block) {
  BlockLayout layout;
  std::vector<ParamSpec> specs = block.params();
  int64_t end = 0;
  for (const ParamSpec& spec : specs) {
    if (!spec.tied_to.empty()) continue;
    const int64_t offset = spec.joined ? end : align(end);
    layout.params.push_back({spec, offset});
    end = offset + spec.shape.numel();
  }
  layout.value_count = align(end);
  end = layout.value_count;
  for (const ParamSpec& spec : specs) {
    if (spec.tied_to.empty()) continue;
    layout.params.push_back({spec, end});
    end = align(end + spec.shape.numel());
  }
  layout.grad_count = end;
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
    if (!param.spec.tied_to.empty()) continue;
    const int64_t size = param.spec.shape.numel();
    const float decay = param.spec.decay || decay_all ? weight_decay : 0.0f;
    for (int64_t begin = 0; begin < size; begin += kernels::kChunk) {
      const int64_t count = std::min(kernels::kChunk, size - begin);
      chunks.push_back({param.offset + begin, static_cast<int32_t>(count), decay});
    }
  }
  return chunks;
}

TiedTo find_tied(const std::vector<BlockLayout>& layouts, const std::string& name) {
  for (size_t b = 0; b < layouts.size(); ++b) {
    for (const PlacedParam& param : layouts[b].params) {
      if (param.spec.tied_to.empty() && param.spec.name == name) return {static_cast<int>(b), &param};
    }
  }
  LS_ASSERT(false, "tied to " + name + ", which no block has");
  return {};
}

}  // namespace lockstep::model
