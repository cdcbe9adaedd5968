// What the attention kernels share: tiles in shared memory, and products of tiles into registers.
//
// A warp owns 16 rows of a result, a block 16 times its warps. Results stay in registers in the layout
// of mma.cuh, whether tensor cores computed them or plain multiply-adds (fp32, and bf16 on sm_75), so
// the softmax around them is written once.
#pragma once

#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/mma.cuh"
#include "lockstep/kernels/reduce.cuh"

namespace lockstep::kernels::cuda {

constexpr int kRowsOfWarp = 16;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// A row of shared memory is 16 bytes longer than its elements: neighbours start in different banks.
template <class T, int kElements>
constexpr int kPadded = kElements + 16 / static_cast<int>(sizeof(T));

// Accumulators of a warp: 16 rows of kColumns.
template <int kColumns>
using Accumulator = float[kColumns / 8][4];

struct LanePlace {
  int g, t;
  __device__ LanePlace() : g(threadIdx.x % kWarp / 4), t(threadIdx.x % 4) {}
  __device__ int row(int c) const { return g + c / 2 * 8; }  // of accumulator [j][c]
  __device__ int column(int j, int c) const { return j * 8 + t * 2 + c % 2; }
};

__device__ inline uint32_t pair_at(const void* two_elements) {
  return *static_cast<const uint32_t*>(two_elements);
}

template <class T>
__device__ inline void load_a(uint32_t (&a)[4], const T* tile, int stride, int k, const LanePlace& lane) {
  const T* at = tile + lane.g * stride + k + lane.t * 2;
  a[0] = pair_at(at);
  a[1] = pair_at(at + 8 * stride);
  a[2] = pair_at(at + 8);
  a[3] = pair_at(at + 8 * stride + 8);
}

// sum += A B^T: A [16, kInner], B [kColumns, kInner].
template <int kColumns, int kInner, class T>
__device__ inline void multiply_transposed(Accumulator<kColumns>& sum, const T* a, int stride_a, const T* b,
                                           int stride_b) {
  const LanePlace lane;
  if constexpr (TensorCores<T>::value) {
    static_assert(kInner % 16 == 0);
    for (int k = 0; k < kInner; k += 16) {
      uint32_t left[4], right[2];
      load_a(left, a, stride_a, k, lane);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const T* at = b + (j * 8 + lane.g) * stride_b + k + lane.t * 2;
        right[0] = pair_at(at);
        right[1] = pair_at(at + 8);
        mma_16x8x16(sum[j], left, right, T{});
      }
    }
  } else {
    for (int k = 0; k < kInner; ++k) {
      const float top = to_float(a[lane.g * stride_a + k]), bottom = to_float(a[(lane.g + 8) * stride_a + k]);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const T* at = b + lane.column(j, 0) * stride_b + k;
        const float left = to_float(at[0]), right = to_float(at[stride_b]);
        sum[j][0] += top * left;
        sum[j][1] += top * right;
        sum[j][2] += bottom * left;
        sum[j][3] += bottom * right;
      }
    }
  }
}

// sum += A B: A [16, kInner], B [kInner, kColumns].
template <int kColumns, int kInner, class T>
__device__ inline void multiply(Accumulator<kColumns>& sum, const T* a, int stride_a, const T* b,
                                int stride_b) {
  const LanePlace lane;
  if constexpr (TensorCores<T>::value) {
    static_assert(kInner % 16 == 0);
    for (int k = 0; k < kInner; k += 16) {
      uint32_t left[4], right[2];
      load_a(left, a, stride_a, k, lane);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        load_transposed(right, b + (k + threadIdx.x % 16) * stride_b + j * 8);
        mma_16x8x16(sum[j], left, right, T{});
      }
    }
  } else {
    for (int k = 0; k < kInner; ++k) {
      const float top = to_float(a[lane.g * stride_a + k]), bottom = to_float(a[(lane.g + 8) * stride_a + k]);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const T* at = b + k * stride_b + lane.column(j, 0);
        const float left = to_float(at[0]), right = to_float(at[1]);
        sum[j][0] += top * left;
        sum[j][1] += top * right;
        sum[j][2] += bottom * left;
        sum[j][3] += bottom * right;
      }
    }
  }
}

// Rounds accumulators into the warp's own 16 rows of shared memory, to become the A of a product.
template <int kColumns, class T>
__device__ inline void put_rows(T* tile, int stride, const Accumulator<kColumns>& values) {
  const LanePlace lane;
  __syncwarp();  // what was there has been read
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) tile[lane.row(c) * stride + lane.column(j, c)] = from_float<T>(values[j][c]);
  }
  __syncwarp();
}

// The layout of one call, for the device.
struct AttentionSizes {
  int seq_len, heads, kv_heads, head_dim;
  int64_t qkv_width;
  float scale;
  bool vectors;  // every row of a head begins at 16 bytes and is a multiple of them

  __device__ int group() const { return heads / kv_heads; }  // query heads that share keys
  __device__ int64_t out_width() const { return static_cast<int64_t>(heads) * head_dim; }
  // First token of a sample; columns of a head within a row of qkv.
  __device__ int64_t query_at(int64_t sample, int head) const {
    return sample * seq_len * qkv_width + static_cast<int64_t>(head) * head_dim;
  }
  __device__ int64_t key_at(int64_t sample, int kv_head) const { return query_at(sample, heads + kv_head); }
  __device__ int64_t value_at(int64_t sample, int kv_head) const {
    return query_at(sample, heads + kv_heads + kv_head);
  }
  __device__ int64_t out_at(int64_t sample, int head) const {
    return sample * seq_len * out_width() + static_cast<int64_t>(head) * head_dim;
  }
  __device__ int64_t lse_at(int64_t sample, int head) const { return (sample * heads + head) * seq_len; }
};

// Copies rows [first, first + kRows) of a head into shared memory; zeros past its last row or column.
template <int kRows, int kDim, int kThreads, class T>
__device__ inline void load_tile(T* tile, const T* head, int64_t row_stride, int first,
                                 const AttentionSizes& sizes) {
  constexpr int N = kWide<T>, kVectors = kDim / N;
  for (int i = threadIdx.x; i < kRows * kVectors; i += kThreads) {
    const int row = i / kVectors, column = i % kVectors * N;
    const bool inside = first + row < sizes.seq_len;
    const T* from = head + (first + row) * row_stride + column;
    Vec<T, N> values{};
    if (inside && sizes.vectors && column < sizes.head_dim) {
      values = load<N>(from);
    } else if (inside) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (column + j < sizes.head_dim) values[j] = from[j];
      }
    }
    store<N>(tile + row * kPadded<T, kDim> + column, values);
  }
}

// Writes a warp's 16 rows of a result, times `factor` of each accumulator row, to rows [first, ..) of a head.
template <int kDim, class T>
__device__ inline void write_rows(T* head, int64_t row_stride, int first, const Accumulator<kDim>& values,
                                  const float (&factor)[2], const AttentionSizes& sizes) {
  const LanePlace lane;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int row = first + lane.row(c);
    if (row >= sizes.seq_len) continue;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      const int column = lane.column(j, c);
      if (column < sizes.head_dim)
        head[row * row_stride + column] = from_float<T>(values[j][c] * factor[c / 2]);
    }
  }
}

}  // namespace lockstep::kernels::cuda
