// What forward and backward of attention in parts share on CUDA: the layout of a call, and results that are
// added to what is there.
#pragma once

#include "lockstep/kernels/attention_launch.cuh"
#include "lockstep/kernels/attention_part.h"

namespace lockstep::kernels::cuda {

// Queries and keys are two sequences here. Of `keys` the "queries" are the keys, its heads the key heads.
struct PartSizes {
  AttentionSizes queries, keys;
  bool causal;

  __device__ int group() const { return queries.heads / keys.heads; }
  __device__ bool seen(int query, int key) const { return key < keys.seq_len && (!causal || key <= query); }
};

inline bool rows_fit_vectors(const AttentionPartShape& shape, int64_t stride) {
  const int64_t size = device::size_of(shape.type);
  return shape.head_dim * size % 16 == 0 && stride * size % 16 == 0;
}

inline PartSizes part_sizes(const AttentionPartShape& shape, const void* q, const void* k, const void* v,
                            const void* dout = nullptr) {
  require_valid(shape);
  AttentionSizes queries = sizes_of(
      {shape.type, shape.samples, shape.q_len, shape.heads, shape.kv_heads, shape.head_dim}, q, dout);
  queries.qkv_width = shape.q_stride;
  queries.vectors = queries.vectors && rows_fit_vectors(shape, shape.q_stride);
  AttentionSizes keys = sizes_of(
      {shape.type, shape.samples, shape.kv_len, shape.kv_heads, shape.kv_heads, shape.head_dim}, k, v);
  keys.qkv_width = shape.kv_stride;
  keys.vectors = keys.vectors && rows_fit_vectors(shape, shape.kv_stride);
  return {queries, keys, shape.causal};
}

// Rows [first, ..) of a head become keep * (what is there) + factor * values; `write`: nothing is there yet.
template <int kDim>
__device__ inline void merge_rows(float* head, int64_t row_stride, int first, const Accumulator<kDim>& values,
                                  const float (&factor)[2], const float (&keep)[2], bool write,
                                  const AttentionSizes& sizes) {
  const LanePlace lane;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int row = first + lane.row(c);
    if (row >= sizes.seq_len) continue;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      const int column = lane.column(j, c);
      if (column >= sizes.head_dim) continue;
      float* at = head + row * row_stride + column;
      *at = (write ? 0.0f : *at * keep[c / 2]) + values[j][c] * factor[c / 2];
    }
  }
}

}  // namespace lockstep::kernels::cuda
