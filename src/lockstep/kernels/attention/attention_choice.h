// Who of two that both take a shape computes it: FlashAttention or cuDNN, by what was measured on an H200
// (docs/measurements.md; the figures themselves are rows of the test).
//
// A function of the shape alone, and not of the number of samples: a batch cut otherwise keeps its bits.
#pragma once

#include "lockstep/kernels/attention/attention_part.h"

namespace lockstep::kernels {

// Below this many keys FlashAttention's fixed costs show: filling its pipeline, clearing and folding sums.
constexpr int64_t kFlashKeys = 2048;

inline bool flash_forward_is_faster(const AttentionPartShape& s) { return s.kv_len >= kFlashKeys; }

// Query heads that share a key head add to its gradient in turns, which wide heads on few keys cannot hide.
inline bool flash_backward_is_faster(const AttentionPartShape& s) {
  if (s.head_dim > 128) return false;
  return s.head_dim <= 64 || s.heads == s.kv_heads || s.kv_len >= kFlashKeys;
}

}  // namespace lockstep::kernels
