// Causal attention, backward, without atomics: scores are computed again from q, k and the saved lse, once
// by the blocks that own keys (dk, dv) and once by the blocks that own queries (dq). Every sum has one
// owner and one order.
#include "lockstep/kernels/attention_launch.cuh"
#include "lockstep/kernels/attention_own.cuh"
#include "lockstep/kernels/table.cuh"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct BackwardPointers {
  const T* qkv;
  const T* dout;
  const float* lse;
  const float* delta;
  T* dqkv;
};

// A block owns keys and walks the queries from its diagonal on, of every head that shares the keys.
template <class T, int kDim>
__global__ void __launch_bounds__(BackwardTile<T, kDim>::kThreads)
    attention_backward_keys_kernel(AttentionSizes sizes, int tiles, BackwardPointers<T> at) {
  using Tile = BackwardTile<T, kDim>;
  constexpr int kWalked = Tile::kWalked, kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float walked_lse[kWalked], walked_delta[kWalked];
  const BackwardTiles<T, kDim> tile(shared);  // owned: keys, values; walked: queries, dout
  const LanePlace lane;

  const int first_key = static_cast<int>(blockIdx.x % tiles) * Tile::kOwned;
  const int kv_head = static_cast<int>(blockIdx.x / tiles % sizes.kv_heads);
  const int64_t sample = blockIdx.x / tiles / sizes.kv_heads;
  const int64_t keys_at = sizes.key_at(sample, kv_head), values_at = sizes.value_at(sample, kv_head);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[0], at.qkv + keys_at, sizes.qkv_width, first_key,
                                                sizes);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[1], at.qkv + values_at, sizes.qkv_width, first_key,
                                                sizes);

  Accumulator<kDim> dkeys = {}, dvalues = {};
  for (int head = kv_head * sizes.group(); head < (kv_head + 1) * sizes.group(); ++head) {
    const float* lse = at.lse + sizes.lse_at(sample, head);
    const float* delta = at.delta + sizes.lse_at(sample, head);
    for (int first_query = first_key; first_query < sizes.seq_len; first_query += kWalked) {
      __syncthreads();  // the tiles before have been read
      load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[0], at.qkv + sizes.query_at(sample, head),
                                               sizes.qkv_width, first_query, sizes);
      load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[1], at.dout + sizes.out_at(sample, head),
                                               sizes.out_width(), first_query, sizes);
      for (int i = threadIdx.x; i < kWalked; i += Tile::kThreads) {
        walked_lse[i] = lse_or_padding(lse, first_query + i, sizes.seq_len);
        walked_delta[i] = first_query + i < sizes.seq_len ? delta[first_query + i] : 0.0f;
      }
      __syncthreads();
      Accumulator<kWalked> p = {}, dp = {};  // [keys, queries]
      multiply_transposed<kWalked, kDim>(p, tile.own(0), kStride, tile.walked[0], kStride);
#pragma unroll
      for (int j = 0; j < kWalked / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int query = lane.column(j, c), key = first_key + tile.own_rows + lane.row(c);
          const float exponent = p[j][c] * (sizes.scale * kLog2E) - walked_lse[query];
          p[j][c] = key <= first_query + query ? exp2f(exponent) : 0.0f;
        }
      }
      put_rows<kWalked>(tile.scores, Tile::kScoreStride, p);
      multiply<kDim, kWalked>(dvalues, tile.scores, Tile::kScoreStride, tile.walked[1], kStride);
      multiply_transposed<kWalked, kDim>(dp, tile.own(1), kStride, tile.walked[1], kStride);
#pragma unroll
      for (int j = 0; j < kWalked / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) p[j][c] *= (dp[j][c] - walked_delta[lane.column(j, c)]) * sizes.scale;
      }
      put_rows<kWalked>(tile.scores, Tile::kScoreStride, p);
      multiply<kDim, kWalked>(dkeys, tile.scores, Tile::kScoreStride, tile.walked[0], kStride);
    }
  }
  const float whole[2] = {1.0f, 1.0f};
  const int own_key = first_key + tile.own_rows;
  write_rows<kDim>(at.dqkv + keys_at, sizes.qkv_width, own_key, dkeys, whole, sizes);
  write_rows<kDim>(at.dqkv + values_at, sizes.qkv_width, own_key, dvalues, whole, sizes);
}

// A block owns queries and walks the keys up to its diagonal.
template <class T, int kDim>
__global__ void __launch_bounds__(BackwardTile<T, kDim>::kThreads)
    attention_backward_queries_kernel(AttentionSizes sizes, int tiles, BackwardPointers<T> at) {
  using Tile = BackwardTile<T, kDim>;
  constexpr int kWalked = Tile::kWalked, kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  const BackwardTiles<T, kDim> tile(shared);  // owned: queries, dout; walked: keys, values
  const LanePlace lane;

  const int first_query =
      (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * Tile::kOwned;  // the longest first
  const int head = static_cast<int>(blockIdx.x / tiles % sizes.heads);
  const int64_t sample = blockIdx.x / tiles / sizes.heads;
  const int kv_head = head / sizes.group();
  const int64_t query_at = sizes.query_at(sample, head);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[0], at.qkv + query_at, sizes.qkv_width,
                                                first_query, sizes);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[1], at.dout + sizes.out_at(sample, head),
                                                sizes.out_width(), first_query, sizes);
  const int own_query = first_query + tile.own_rows;
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = own_query + lane.g + half * 8;
    lse[half] = lse_or_padding(at.lse + sizes.lse_at(sample, head), query, sizes.seq_len);
    delta[half] = query < sizes.seq_len ? at.delta[sizes.lse_at(sample, head) + query] : 0.0f;
  }

  Accumulator<kDim> dqueries = {};
  const int end = min(first_query + Tile::kOwned, sizes.seq_len);
  for (int first_key = 0; first_key < end; first_key += kWalked) {
    __syncthreads();  // the tiles before have been read
    load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[0], at.qkv + sizes.key_at(sample, kv_head),
                                             sizes.qkv_width, first_key, sizes);
    load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[1], at.qkv + sizes.value_at(sample, kv_head),
                                             sizes.qkv_width, first_key, sizes);
    __syncthreads();
    Accumulator<kWalked> p = {}, dp = {};  // [queries, keys]
    multiply_transposed<kWalked, kDim>(p, tile.own(0), kStride, tile.walked[0], kStride);
    multiply_transposed<kWalked, kDim>(dp, tile.own(1), kStride, tile.walked[1], kStride);
#pragma unroll
    for (int j = 0; j < kWalked / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const bool seen = first_key + lane.column(j, c) <= own_query + lane.row(c);
        const float exponent = p[j][c] * (sizes.scale * kLog2E) - lse[c / 2];
        p[j][c] = seen ? exp2f(exponent) * (dp[j][c] - delta[c / 2]) * sizes.scale : 0.0f;
      }
    }
    put_rows<kWalked>(tile.scores, Tile::kScoreStride, p);
    multiply<kDim, kWalked>(dqueries, tile.scores, Tile::kScoreStride, tile.walked[0], kStride);
  }
  const float whole[2] = {1.0f, 1.0f};
  write_rows<kDim>(at.dqkv + query_at, sizes.qkv_width, own_query, dqueries, whole, sizes);
}

}  // namespace

int64_t own_attention_workspace(const AttentionShape& shape) {
  return shape.rows() * shape.heads * static_cast<int64_t>(sizeof(float));  // delta
}

void own_attention_backward(const AttentionBackward& op, const Launch& launch) {
  const Launcher run("attention_backward", launch);
  const AttentionShape& shape = op.shape;
  const AttentionSizes sizes = sizes_of(shape, op.qkv, op.dout);
  require_workspace(launch, own_attention_workspace(shape), "attention_backward");
  float* delta = static_cast<float*>(launch.workspace);  // [samples, heads, seq_len], as lse
  attention_delta(
      {shape.type, shape.samples, shape.seq_len, shape.heads, shape.head_dim, op.out, op.dout, delta},
      launch);
  by_head_dim(shape, [&](auto element, auto dim) {
    using T = decltype(element);
    using Tile = BackwardTile<T, dim.value>;
    const BackwardPointers<T> at = {.qkv = static_cast<const T*>(op.qkv),
                                    .dout = static_cast<const T*>(op.dout),
                                    .lse = op.lse,
                                    .delta = delta,
                                    .dqkv = static_cast<T*>(op.dqkv)};
    const int64_t tiles = divide_up(shape.seq_len, Tile::kOwned);
    const auto grid = [&](int64_t heads) {
      return Grid{
          .blocks = shape.samples * heads * tiles, .threads = Tile::kThreads, .shared_bytes = Tile::kBytes};
    };
    run(grid(shape.kv_heads), attention_backward_keys_kernel<T, dim.value>, sizes, static_cast<int>(tiles),
        at);
    run(grid(shape.heads), attention_backward_queries_kernel<T, dim.value>, sizes, static_cast<int>(tiles),
        at);
  });
}

}  // namespace lockstep::kernels::cuda
