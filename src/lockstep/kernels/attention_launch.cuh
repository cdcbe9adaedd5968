// From an attention shape to the kernel instance that fits it.
#pragma once

#include "lockstep/kernels/attention_block.cuh"
#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {

constexpr int64_t kMostHeadDim = 256;

// Refuses what no instance computes.
void check_shape(const AttentionShape& shape);

template <class... Pointers>
AttentionSizes sizes_of(const AttentionShape& shape, const Pointers*... pointers) {
  check_shape(shape);
  const int64_t row_bytes = shape.head_dim * device::size_of(shape.type);
  return {.seq_len = static_cast<int>(shape.seq_len),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .qkv_width = shape.qkv_width(),
          .scale = shape.scale(),
          .vectors = row_bytes % 16 == 0 && (is_aligned(16, pointers) && ...)};
}

// Calls function(T{}, integral_constant<kDim>) with the narrowest kDim that head_dim fits in.
template <class Shape, class Function>
void by_head_dim(const Shape& shape, Function function) {
  by_type(shape.type, [&](auto element) {
    if (shape.head_dim <= 32) return function(element, std::integral_constant<int, 32>{});
    if (shape.head_dim <= 64) return function(element, std::integral_constant<int, 64>{});
    if (shape.head_dim <= 96) return function(element, std::integral_constant<int, 96>{});
    if (shape.head_dim <= 128) return function(element, std::integral_constant<int, 128>{});
    function(element, std::integral_constant<int, kMostHeadDim>{});
  });
}

}  // namespace lockstep::kernels::cuda
