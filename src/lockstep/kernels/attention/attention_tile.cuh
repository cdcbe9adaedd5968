// What the attention kernels share: tiles in shared memory, and products of tiles into registers.
//
// A warp owns 16 rows of a result, a block 16 times its warps. Results stay in registers in the layout
// of mma.cuh, whether tensor cores computed them or plain multiply-adds (fp32, and bf16 on sm_75), so
// the softmax around them is written once.
#pragma once

#include "lockstep/kernels/attention/attention.h"
#include "lockstep/kernels/attention/mma.cuh"
#include "lockstep/kernels/reduce/reduce.cuh"

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

// Rows of every head of an operand, for the device: token t of sample s is row s * tokens + t.
struct HeadRows {
  int tokens, heads, head_dim;
  int64_t stride;  // elements between rows
  bool vectors;    // every row of a head begins at 16 bytes and is a multiple of them

  __device__ int64_t at(int64_t sample, int head) const {
    return sample * tokens * stride + static_cast<int64_t>(head) * head_dim;
  }
};

// One call, for the device: queries against the keys of the same sequence, or of another chunk of it.
struct AttentionWalk {
  HeadRows q, kv, out;  // of q; of k and of v; of out and of dout
  HeadRows dq, dkv;
  float scale;
  float softcap;  // 0: none
  bool causal;
  int reach;              // key j is within the window of query i where i - j < reach
  const int32_t* begins;  // of Documents, for each query; null: none
  int keys_at;            // where in its sample key 0 stands; only with documents

  __device__ int group() const { return q.heads / kv.heads; }  // query heads that share keys
  // The first key here of the document that a query belongs to; queries past the last one belong to none.
  __device__ int document_of(int64_t sample, int query) const {
    if (begins == nullptr) return 0;
    return query < q.tokens ? max(0, begins[sample * q.tokens + query] - keys_at) : kv.tokens;
  }
  // `document` is that of the query.
  __device__ bool sees(int query, int key, int document) const {
    return key < kv.tokens && (!causal || key <= query) && query - key < reach && key >= document;
  }
  // The first key after all that queries [.., end) see.
  __device__ int keys_before(int end) const { return causal ? min(end, kv.tokens) : kv.tokens; }
  // The first key that queries [first, ..) see, down to a multiple of `step`; `document` is that of the
  // first.
  __device__ int keys_from(int first, int document, int step) const {
    return max(document, first - reach + 1) / step * step;
  }
  // The first query after all that see keys [.., end).
  __device__ int queries_before(int end) const {
    return static_cast<int>(max(int64_t{0}, min(int64_t{q.tokens}, int64_t{end} - 1 + reach)));
  }
  // A product of q and k as a score in units of log 2.
  __device__ float score_of(float product) const {
    return softcap == 0 ? product * (scale * kLog2E) : capped(product);
  }
  // The probability of a key, from the row's log-sum-exp in units of log 2.
  __device__ float probability(float product, float lse) const {
    return exp2f(softcap == 0 ? product * (scale * kLog2E) - lse : capped(product) - lse);
  }
  // By what a score's gradient is multiplied on its way back to the product; from the probability, so that
  // nothing need be kept where there is no cap.
  __device__ float slope(float p, float lse) const {
    if (softcap == 0 || p == 0) return scale;
    const float t = (log2f(p) + lse) / (softcap * kLog2E);
    return scale * (1.0f - t * t);
  }
  __device__ float capped(float product) const {
    return tanhf(product * scale / softcap) * (softcap * kLog2E);
  }
  __device__ int64_t lse_at(int64_t sample, int head) const {
    return (sample * q.heads + head) * static_cast<int64_t>(q.tokens);
  }
};

// Copies rows [first, first + kRows) of a head into shared memory; zeros past its last row or column.
template <int kRows, int kDim, int kThreads, class T>
__device__ inline void load_tile(T* tile, const T* head, const HeadRows& rows, int first) {
  constexpr int N = kWide<T>, kVectors = kDim / N;
  for (int i = threadIdx.x; i < kRows * kVectors; i += kThreads) {
    const int row = i / kVectors, column = i % kVectors * N;
    const bool inside = first + row < rows.tokens;
    const T* from = head + (first + row) * rows.stride + column;
    Vec<T, N> values{};
    if (inside && rows.vectors && column < rows.head_dim) {
      values = load<N>(from);
    } else if (inside) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (column + j < rows.head_dim) values[j] = from[j];
      }
    }
    store<N>(tile + row * kPadded<T, kDim> + column, values);
  }
}

// Rows [first, ..) of a head become factor * values, and keep * (what is there) unless nothing is there yet.
template <int kDim, class Out>
__device__ inline void merge_rows(Out* head, const HeadRows& rows, int first, const Accumulator<kDim>& values,
                                  const float (&factor)[2], const float (&keep)[2], bool nothing_there) {
  const LanePlace lane;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int row = first + lane.row(c);
    if (row >= rows.tokens) continue;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      const int column = lane.column(j, c);
      if (column >= rows.head_dim) continue;
      Out* at = head + row * rows.stride + column;
      const float value = values[j][c] * factor[c / 2];
      *at = from_float<Out>(nothing_there ? value : to_float(*at) * keep[c / 2] + value);
    }
  }
}

template <int kDim, class Out>
__device__ inline void add_to_rows(Out* head, const HeadRows& rows, int first,
                                   const Accumulator<kDim>& values, bool nothing_there) {
  const float whole[2] = {1.0f, 1.0f};
  merge_rows<kDim>(head, rows, first, values, whole, whole, nothing_there);
}

}  // namespace lockstep::kernels::cuda
