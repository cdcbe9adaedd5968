// Where each parameter of a block lies in the block's flat buffers.
//
// Values (masters, compute copies, optimizer states) of a block are one flat run, gradients another that
// also has a slot for every tied parameter, after all values. Parameters start at multiples of
// kParamAlignment elements, except a `joined` one, which follows its predecessor without a gap.
#pragma once

#include <string>
#include <vector>

#include "lockstep/kernels/optimizer/optimizer.h"
#include "lockstep/model/block.h"

namespace lockstep::model {

constexpr int64_t kParamAlignment = 64;  // elements: 256 bytes in fp32, 128 in bf16

struct PlacedParam {
  ParamSpec spec;
  int64_t offset = 0;  // in elements; for a tied parameter, of its gradient slot
};

struct BlockLayout {
  std::vector<PlacedParam> params;
  int64_t value_count = 0;  // elements of values
  int64_t grad_count = 0;   // elements of gradients: value_count, then the tied slots
  const PlacedParam& find(const std::string& key) const;  // "qkv.weight"
};

BlockLayout layout_of(const Block& block);

// The canonical chunks of a block: at most kernels::kChunk elements, never across parameters.
std::vector<kernels::Chunk> chunks_of(const BlockLayout& layout, float weight_decay, bool decay_all);

// Which block and parameter holds the values of a tied one.
struct TiedTo {
  int block = -1;
  const PlacedParam* param = nullptr;
};
TiedTo find_tied(const std::vector<BlockLayout>& layouts, const std::string& name);

}  // namespace lockstep::model
