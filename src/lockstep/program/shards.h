// Shards: how the flat values and gradients of each block are cut among the ranks of a shard group.
//
// Values are cut only between canonical chunks (kernels/optimizer/optimizer.h), so that norms and hashes need
// no gather; parameters that an update rule must see whole are never cut. A rank's shard of a block's
// gradients is the range of its values and, for each tied slot of the
// block, the same elements that it holds of the parameter the slot is tied to, so that both can be added
// without another exchange.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/model/layout.h"

namespace lockstep::program {

struct Span {  // elements of a flat buffer
  int64_t begin = 0, count = 0;
  int64_t end() const { return begin + count; }
  bool operator==(const Span&) const = default;
};

// One rank's shard of one block.
struct Shard {
  Span values;
  int64_t first_chunk = 0, chunks = 0;  // of the block's canonical chunks
  std::vector<Span> gradients;          // values, then its part of each tied slot, in the layout's order
  std::vector<int64_t> offsets;         // where each of them starts in a buffer that holds only this shard
  int64_t gradient_count = 0;           // elements of such a buffer
  // Of the values that are not trained, and of those that are kept quantized; first and count of their
  // chunks.
  struct Kept {
    Span span;
    int64_t first_chunk = 0, chunks = 0;
  };
  Kept frozen, quantized;
  Kept kept(model::Stored stored) const {
    if (stored == model::Stored::trained) return {values, first_chunk, chunks};
    return stored == model::Stored::frozen ? frozen : quantized;
  }
};

// [block][shard rank]. Pieces go round from block to block, so that small blocks do not all fall to one rank.
std::vector<std::vector<Shard>> cut_into_shards(const std::vector<model::BlockLayout>& layouts, int ranks);

// Where the tied parameter `param` of a block stands among a shard's gradients.
size_t tied_slot(const model::BlockLayout& layout, int param);

Span intersect(const Span& a, const Span& b);  // begins at the later begin, also where it is empty

// `count` elements in `parts` nearly equal runs whose borders are multiples of 64.
std::vector<Span> cut_evenly(int64_t count, int parts);

}  // namespace lockstep::program
