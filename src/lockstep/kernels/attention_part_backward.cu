// Attention against some of the keys, backward, as attention_backward.cu does it for all of them: blocks that
// own keys (dk, dv) and blocks that own queries (dq), each sum with one owner and one order.
#include "lockstep/kernels/attention_part.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct PartBackwardPointers {
  const T *q, *k, *v, *dout;
  const float *lse, *delta;
  float *dq, *dk, *dv;
  int64_t dkv_stride;
  bool first_q, first_kv;
};

// A block owns keys and walks the queries that see them, of every head that shares the keys.
template <class T, int kDim>
__global__ void __launch_bounds__(BackwardTile<T, kDim>::kThreads)
    attention_part_keys_kernel(PartSizes sizes, int tiles, PartBackwardPointers<T> at) {
  using Tile = BackwardTile<T, kDim>;
  constexpr int kWalked = Tile::kWalked, kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float walked_lse[kWalked], walked_delta[kWalked];
  const BackwardTiles<T, kDim> tile(shared);  // owned: keys, values; walked: queries, dout
  const LanePlace lane;
  const AttentionSizes& queries = sizes.queries;
  const float scale = queries.scale;

  const int first_key = static_cast<int>(blockIdx.x % tiles) * Tile::kOwned;
  const int kv_head = static_cast<int>(blockIdx.x / tiles % sizes.keys.heads);
  const int64_t sample = blockIdx.x / tiles / sizes.keys.heads;
  const int64_t keys_at = sizes.keys.query_at(sample, kv_head);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[0], at.k + keys_at, sizes.keys.qkv_width,
                                                first_key, sizes.keys);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[1], at.v + keys_at, sizes.keys.qkv_width,
                                                first_key, sizes.keys);

  Accumulator<kDim> dkeys = {}, dvalues = {};
  for (int head = kv_head * sizes.group(); head < (kv_head + 1) * sizes.group(); ++head) {
    const float* lse = at.lse + queries.lse_at(sample, head);
    const float* delta = at.delta + queries.lse_at(sample, head);
    for (int first_query = sizes.causal ? first_key : 0; first_query < queries.seq_len;
         first_query += kWalked) {
      __syncthreads();  // the tiles before have been read
      load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[0], at.q + queries.query_at(sample, head),
                                               queries.qkv_width, first_query, queries);
      load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[1], at.dout + queries.out_at(sample, head),
                                               queries.out_width(), first_query, queries);
      for (int i = threadIdx.x; i < kWalked; i += Tile::kThreads) {
        walked_lse[i] = lse_or_padding(lse, first_query + i, queries.seq_len);
        walked_delta[i] = first_query + i < queries.seq_len ? delta[first_query + i] : 0.0f;
      }
      __syncthreads();
      Accumulator<kWalked> p = {}, dp = {};  // [keys, queries]
      multiply_transposed<kWalked, kDim>(p, tile.own(0), kStride, tile.walked[0], kStride);
#pragma unroll
      for (int j = 0; j < kWalked / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int query = lane.column(j, c), key = first_key + tile.own_rows + lane.row(c);
          const float exponent = p[j][c] * (scale * kLog2E) - walked_lse[query];
          p[j][c] = sizes.seen(first_query + query, key) ? exp2f(exponent) : 0.0f;
        }
      }
      put_rows<kWalked>(tile.scores, Tile::kScoreStride, p);
      multiply<kDim, kWalked>(dvalues, tile.scores, Tile::kScoreStride, tile.walked[1], kStride);
      multiply_transposed<kWalked, kDim>(dp, tile.own(1), kStride, tile.walked[1], kStride);
#pragma unroll
      for (int j = 0; j < kWalked / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) p[j][c] *= (dp[j][c] - walked_delta[lane.column(j, c)]) * scale;
      }
      put_rows<kWalked>(tile.scores, Tile::kScoreStride, p);
      multiply<kDim, kWalked>(dkeys, tile.scores, Tile::kScoreStride, tile.walked[0], kStride);
    }
  }
  const float whole[2] = {1.0f, 1.0f};
  const int own_key = first_key + tile.own_rows;
  const int64_t to = sample * sizes.keys.seq_len * at.dkv_stride + int64_t{kv_head} * sizes.keys.head_dim;
  merge_rows<kDim>(at.dk + to, at.dkv_stride, own_key, dkeys, whole, whole, at.first_kv, sizes.keys);
  merge_rows<kDim>(at.dv + to, at.dkv_stride, own_key, dvalues, whole, whole, at.first_kv, sizes.keys);
}

// A block owns queries and walks the keys that they see.
template <class T, int kDim>
__global__ void __launch_bounds__(BackwardTile<T, kDim>::kThreads)
    attention_part_queries_kernel(PartSizes sizes, int tiles, PartBackwardPointers<T> at) {
  using Tile = BackwardTile<T, kDim>;
  constexpr int kWalked = Tile::kWalked, kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  const BackwardTiles<T, kDim> tile(shared);  // owned: queries, dout; walked: keys, values
  const LanePlace lane;
  const AttentionSizes& queries = sizes.queries;
  const float scale = queries.scale;

  const int first_query =
      (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * Tile::kOwned;  // the longest first
  const int head = static_cast<int>(blockIdx.x / tiles % queries.heads);
  const int64_t sample = blockIdx.x / tiles / queries.heads;
  const int64_t keys_at = sizes.keys.query_at(sample, head / sizes.group());
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[0], at.q + queries.query_at(sample, head),
                                                queries.qkv_width, first_query, queries);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[1], at.dout + queries.out_at(sample, head),
                                                queries.out_width(), first_query, queries);
  const int own_query = first_query + tile.own_rows;
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = own_query + lane.g + half * 8;
    lse[half] = lse_or_padding(at.lse + queries.lse_at(sample, head), query, queries.seq_len);
    delta[half] = query < queries.seq_len ? at.delta[queries.lse_at(sample, head) + query] : 0.0f;
  }

  Accumulator<kDim> dqueries = {};
  const int end = sizes.causal ? min(first_query + Tile::kOwned, sizes.keys.seq_len) : sizes.keys.seq_len;
  for (int first_key = 0; first_key < end; first_key += kWalked) {
    __syncthreads();  // the tiles before have been read
    load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[0], at.k + keys_at, sizes.keys.qkv_width, first_key,
                                             sizes.keys);
    load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[1], at.v + keys_at, sizes.keys.qkv_width, first_key,
                                             sizes.keys);
    __syncthreads();
    Accumulator<kWalked> p = {}, dp = {};  // [queries, keys]
    multiply_transposed<kWalked, kDim>(p, tile.own(0), kStride, tile.walked[0], kStride);
    multiply_transposed<kWalked, kDim>(dp, tile.own(1), kStride, tile.walked[1], kStride);
#pragma unroll
    for (int j = 0; j < kWalked / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const bool seen = sizes.seen(own_query + lane.row(c), first_key + lane.column(j, c));
        const float exponent = p[j][c] * (scale * kLog2E) - lse[c / 2];
        p[j][c] = seen ? exp2f(exponent) * (dp[j][c] - delta[c / 2]) * scale : 0.0f;
      }
    }
    put_rows<kWalked>(tile.scores, Tile::kScoreStride, p);
    multiply<kDim, kWalked>(dqueries, tile.scores, Tile::kScoreStride, tile.walked[0], kStride);
  }
  const float whole[2] = {1.0f, 1.0f};
  merge_rows<kDim>(at.dq + queries.out_at(sample, head), queries.out_width(), own_query, dqueries, whole,
                   whole, at.first_q, queries);
}

}  // namespace

void attention_part_backward(const AttentionPartBackward& op, const Launch& launch) {
  const Launcher run("attention_part_backward", launch);
  const AttentionPartShape& shape = op.shape;
  const PartSizes sizes = part_sizes(shape, op.q, op.k, op.v, op.dout);
  by_head_dim(shape, [&](auto element, auto dim) {
    using T = decltype(element);
    using Tile = BackwardTile<T, dim.value>;
    const PartBackwardPointers<T> at = {.q = static_cast<const T*>(op.q),
                                        .k = static_cast<const T*>(op.k),
                                        .v = static_cast<const T*>(op.v),
                                        .dout = static_cast<const T*>(op.dout),
                                        .lse = op.lse,
                                        .delta = op.delta,
                                        .dq = op.dq,
                                        .dk = op.dk,
                                        .dv = op.dv,
                                        .dkv_stride = op.dkv_stride,
                                        .first_q = op.first_q,
                                        .first_kv = op.first_kv};
    const auto grid = [&](int64_t heads, int64_t tiles) {
      return Grid{
          .blocks = shape.samples * heads * tiles, .threads = Tile::kThreads, .shared_bytes = Tile::kBytes};
    };
    const int64_t key_tiles = divide_up(shape.kv_len, Tile::kOwned);
    const int64_t query_tiles = divide_up(shape.q_len, Tile::kOwned);
    run(grid(shape.kv_heads, key_tiles), attention_part_keys_kernel<T, dim.value>, sizes,
        static_cast<int>(key_tiles), at);
    run(grid(shape.heads, query_tiles), attention_part_queries_kernel<T, dim.value>, sizes,
        static_cast<int>(query_tiles), at);
  });
}

}  // namespace lockstep::kernels::cuda
