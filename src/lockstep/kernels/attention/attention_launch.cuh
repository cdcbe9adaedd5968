// From an attention shape to the kernel instance that fits it.
#pragma once

#include <algorithm>

#include "lockstep/kernels/attention/attention_block.cuh"
#include "lockstep/kernels/attention/attention_part.h"
#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"

namespace lockstep::kernels::cuda {

constexpr int64_t kMostHeadDim = 256;

// Refuses what no instance computes.
void check_head_dim(int64_t head_dim);

// Rows of `heads` heads at each of the pointers.
template <class... Pointers>
HeadRows rows_of(const AttentionPartShape& shape, int64_t tokens, int64_t heads, int64_t stride,
                 const Pointers*... pointers) {
  LS_ASSERT(tokens < int64_t{1} << 30);
  const int64_t element = device::size_of(shape.type);
  const bool rows_fit = shape.head_dim * element % 16 == 0 && stride * element % 16 == 0;
  return {.tokens = static_cast<int>(tokens),
          .heads = static_cast<int>(heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .stride = stride,
          .vectors = rows_fit && (is_aligned(16, pointers) && ...)};
}

// What forward and backward have in common.
inline AttentionWalk walk_of(const AttentionPartShape& shape, const void* q, const void* k, const void* v,
                             const void* dout = nullptr) {
  require_valid(shape);
  check_head_dim(shape.head_dim);
  AttentionWalk walk{};
  walk.q = rows_of(shape, shape.q_len, shape.heads, shape.q_stride, q);
  walk.kv = rows_of(shape, shape.kv_len, shape.kv_heads, shape.kv_stride, k, v);
  walk.out = rows_of(shape, shape.q_len, shape.heads, shape.heads * shape.head_dim, dout);
  constexpr int64_t kFar = int64_t{1} << 30;  // more tokens than there are
  LS_ASSERT(shape.distance < kFar);
  walk.scale = shape.scale();
  walk.softcap = shape.scores.softcap;
  walk.causal = shape.causal;
  walk.reach =
      static_cast<int>(shape.scores.window > 0 ? std::min(shape.scores.window, kFar) - shape.distance : kFar);
  return walk;
}

// Calls function(T{}, integral_constant<kDim>) with the narrowest kDim that head_dim fits in.
template <class Function>
void by_head_dim(const AttentionPartShape& shape, Function function) {
  by_type(shape.type, [&](auto element) {
    if (shape.head_dim <= 32) return function(element, std::integral_constant<int, 32>{});
    if (shape.head_dim <= 64) return function(element, std::integral_constant<int, 64>{});
    if (shape.head_dim <= 96) return function(element, std::integral_constant<int, 96>{});
    if (shape.head_dim <= 128) return function(element, std::integral_constant<int, 128>{});
    function(element, std::integral_constant<int, kMostHeadDim>{});
  });
}

}  // namespace lockstep::kernels::cuda
