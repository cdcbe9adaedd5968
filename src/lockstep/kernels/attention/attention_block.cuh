// What a block of the attention kernels holds: sizes of its tiles, where they lie in shared memory, and the
// softmax so far of the rows it owns. Whole sequences and parts of them are walked with the same blocks.
#pragma once

#include "lockstep/kernels/attention/attention_tile.cuh"

namespace lockstep::kernels::cuda {

// Rows of queries and of keys that are on the chip at once: within the 64 KiB that sm_75 has.
template <class T, int kDim>
struct ForwardTile {
  static constexpr bool kHalf = sizeof(T) == 2;
  static constexpr int kQueries = kHalf ? (kDim <= 128 ? 64 : 32) : kDim <= 96 ? 64 : kDim <= 128 ? 32 : 16;
  static constexpr int kKeys = kHalf ? (kDim <= 128 ? 64 : 32) : kDim <= 128 ? 32 : 16;
  static constexpr int kThreads = kQueries / kRowsOfWarp * kWarp;
  static constexpr int kStride = kPadded<T, kDim>, kScoreStride = kPadded<T, kKeys>;
  static constexpr int kBytes =
      static_cast<int>(sizeof(T)) * ((kQueries + 2 * kKeys) * kStride + kQueries * kScoreStride);
  static_assert(kBytes <= 64 * 1024);
};

// The softmax of a warp's 16 rows so far; a lane keeps two of them, together with its three neighbours.
struct RunningSoftmax {
  float max[2] = {-INFINITY, -INFINITY};  // of scores in units of log 2
  float sum[2] = {0, 0};                  // this lane's columns only

  // Scores become exp2(score - max); returns by what everything before is to be multiplied.
  template <int kKeys>
  __device__ void add(Accumulator<kKeys>& scores, float (&rescale)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = max[half];
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        highest = fmaxf(highest, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
      }
      highest = warp_fold<4>(highest, Max{});
      const float base = highest == -INFINITY ? 0.0f : highest;  // no key seen yet: exp2(-inf) is 0
      rescale[half] = exp2f(max[half] - base);
      max[half] = highest;
      float total = 0;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; ++c) {
          scores[j][c] = exp2f(scores[j][c] - base);
          total += scores[j][c];
        }
      }
      sum[half] = sum[half] * rescale[half] + total;
    }
  }
};

// Two runs of a row's keys as one: its log-sum-exp, and by what the result of each is to be multiplied.
struct MergedLse {
  float lse, keep, factor;
};
__device__ inline MergedLse merge(float before, float of_part) {
  const float top = fmaxf(before, of_part);
  if (top == -INFINITY) return {top, 0.0f, 0.0f};  // neither saw a key
  const float lse = top + logf(expf(before - top) + expf(of_part - top));
  return {lse, expf(before - lse), expf(of_part - lse)};
}

template <int kDim>
__device__ inline void rescale_rows(Accumulator<kDim>& values, const float (&factor)[2]) {
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) values[j][c] *= factor[c / 2];
  }
}

// Rows that a block owns, and rows that it walks over: within the 64 KiB that sm_75 has.
template <class T, int kDim>
struct BackwardTile {
  static constexpr bool kHalf = sizeof(T) == 2;
  static constexpr int kOwned = kHalf ? (kDim <= 128 ? 64 : 32) : kDim <= 64 ? 64 : kDim <= 128 ? 32 : 16;
  static constexpr int kWalked = kHalf ? (kDim <= 128 ? 32 : 16) : kDim <= 96 ? 32 : kDim <= 128 ? 16 : 8;
  static constexpr int kThreads = kOwned / kRowsOfWarp * kWarp;
  static constexpr int kStride = kPadded<T, kDim>, kScoreStride = kPadded<T, kWalked>;
  static constexpr int kBytes =
      static_cast<int>(sizeof(T)) * (2 * (kOwned + kWalked) * kStride + kOwned * kScoreStride);
  static_assert(kBytes <= 64 * 1024 - 1024);  // a little is static: lse and delta of the walked rows
  static_assert(kOwned % kWalked == 0);
};

// The shared memory of both kernels.
template <class T, int kDim>
struct BackwardTiles {
  using Tile = BackwardTile<T, kDim>;
  T* owned[2];   // [kOwned, kDim]
  T* walked[2];  // [kWalked, kDim]
  T* scores;     // this warp's 16 rows of [kOwned, kWalked]
  int own_rows;  // where they begin

  __device__ explicit BackwardTiles(unsigned char* shared) {
    own_rows = static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp;
    owned[0] = reinterpret_cast<T*>(shared);
    owned[1] = owned[0] + Tile::kOwned * Tile::kStride;
    walked[0] = owned[1] + Tile::kOwned * Tile::kStride;
    walked[1] = walked[0] + Tile::kWalked * Tile::kStride;
    scores = walked[1] + Tile::kWalked * Tile::kStride + own_rows * Tile::kScoreStride;
  }
  __device__ const T* own(int which) const { return owned[which] + own_rows * Tile::kStride; }
};

// Past the last query: exp2(score - inf) = 0, so that padding adds nothing.
__device__ inline float lse_or_padding(const float* lse, int query, int seq_len) {
  return query < seq_len ? lse[query] * kLog2E : INFINITY;
}

}  // namespace lockstep::kernels::cuda
