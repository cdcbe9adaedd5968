// Where each parameter of a block lies in the block's flat buffers.
//
// Trained values (masters, compute copies, optimizer states) of a block are one flat run, gradients another
// that also has a slot for every tied parameter, after all values; frozen values are a third, in the type
// that products read and with nothing beside it; those that are kept quantized are a fourth, in blocks
// (kernels/quantized/quantized.h). Parameters start at multiples of kParamAlignment elements,
// except a `joined` one, which follows its predecessor without a gap. Where a block's parameters have several
// update rules, those of one rule lie side by side: a region.
#pragma once

#include <string>
#include <vector>

#include "lockstep/kernels/optimizer/optimizer.h"
#include "lockstep/model/block.h"

namespace lockstep::model {

constexpr int64_t kParamAlignment = 64;  // elements: 256 bytes in fp32, 128 in bf16
static_assert(kParamAlignment % kernels::kQuantizedBlock == 0, "parameters begin where blocks do");

// Which of the flat runs holds the values of a parameter that is not tied.
enum class Stored : uint8_t { trained, frozen, quantized };
constexpr Stored kStored[] = {Stored::trained, Stored::frozen, Stored::quantized};
Stored stored_as(const ParamSpec& spec);

struct PlacedParam {
  ParamSpec spec;
  // In elements of the run that holds it; for a tied parameter, of its gradient slot.
  int64_t offset = 0;
  // Quantized: where it begins among the values of its segment's, once they are dequantized. Joined ones
  // follow each other there, and not where they are kept.
  int64_t offset_in_segment = 0;
  int index = 0;  // among the block's parameters, as the model lists them; parts of one parameter share it
};

// Trained values with one rule. Its states are runs of the same elements, or belong to one parameter each.
struct Region {
  int rule = 0;
  bool whole = false;            // the rule is called with whole parameters, not with chunks
  int64_t begin = 0, count = 0;  // elements
  int64_t first_chunk = 0, chunks = 0;
  std::vector<int> params;  // indices into BlockLayout::params
  int64_t end() const { return begin + count; }
};

struct BlockLayout {
  // Trained ones in the order in which they lie, frozen ones, quantized ones, tied ones.
  std::vector<PlacedParam> params;
  std::vector<Region> regions;
  int64_t value_count = 0;      // elements of trained values
  int64_t grad_count = 0;       // elements of gradients: value_count, then the tied slots
  int64_t frozen_count = 0;     // elements of frozen values
  int64_t quantized_count = 0;  // of those that are kept quantized: whole blocks
  kernels::Quantized format = kernels::Quantized::none;  // of all of them
  int64_t slots = 0;  // chunks of all trained values, those of parts that other ranks hold included
  int64_t count(Stored stored) const;
  const PlacedParam& find(const std::string& key) const;  // "qkv.weight"
};

BlockLayout layout_of(const Block& block);

// The canonical chunks of a block's trained values: at most kernels::kChunk elements, never across
// parameters, in the order in which they lie. Their slots are in that order too; but where the numeric
// contract cuts a parameter (Cut::fixed), there are slots for all its parts, in the order of the parts.
std::vector<kernels::Chunk> chunks_of(const BlockLayout& layout, float weight_decay, bool decay_all);
// Those of one run, without rates and decay.
std::vector<kernels::Chunk> chunks_of(const BlockLayout& layout, Stored stored);
// Elements that a segment's quantized values take when they are dequantized; 0: it has none.
int64_t dequantized_count(const BlockLayout& layout, const std::string& segment);

// Which block and parameter holds the values of a tied one.
struct TiedTo {
  int block = -1;
  const PlacedParam* param = nullptr;
};
TiedTo find_tied(const std::vector<BlockLayout>& layouts, const ParamSpec& tied);

}  // namespace lockstep::model
