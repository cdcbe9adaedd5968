// Attention, backward, without atomics: scores are computed again from q, k and the final lse, once by the
// blocks that own keys (dk, dv) and once by the blocks that own queries (dq). Every sum has one owner and one
// order. Gradients of a part are added to those of other parts; a whole sequence is its own only part.
#include "lockstep/kernels/attention/attention_launch.cuh"
#include "lockstep/kernels/attention/attention_own.cuh"
#include "lockstep/kernels/table.cuh"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::cuda {
namespace {

// Out: T for a whole sequence, float for what other parts are added to.
template <class T, class Out>
struct BackwardPointers {
  const T *q, *k, *v, *dout;
  const float *lse, *delta;
  Out *dq, *dk, *dv;
  bool first_q, first_kv;
};

// A block owns keys and walks the queries that see them, of every head that shares the keys.
template <class T, class Out, int kDim>
__global__ void __launch_bounds__(BackwardTile<T, kDim>::kThreads)
    attention_backward_keys_kernel(AttentionWalk walk, int tiles, BackwardPointers<T, Out> at) {
  using Tile = BackwardTile<T, kDim>;
  constexpr int kWalked = Tile::kWalked, kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float walked_lse[kWalked], walked_delta[kWalked];
  __shared__ int walked_document[kWalked];
  const BackwardTiles<T, kDim> tile(shared);  // owned: keys, values; walked: queries, dout
  const LanePlace lane;

  const int first_key = static_cast<int>(blockIdx.x % tiles) * Tile::kOwned;
  const int kv_head = static_cast<int>(blockIdx.x / tiles % walk.kv.heads);
  const int64_t sample = blockIdx.x / tiles / walk.kv.heads;
  const int64_t keys_at = walk.kv.at(sample, kv_head);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[0], at.k + keys_at, walk.kv, first_key);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[1], at.v + keys_at, walk.kv, first_key);

  Accumulator<kDim> dkeys = {}, dvalues = {};
  for (int head = kv_head * walk.group(); head < (kv_head + 1) * walk.group(); ++head) {
    const float* lse = at.lse + walk.lse_at(sample, head);
    const float* delta = at.delta + walk.lse_at(sample, head);
    const int earliest = walk.causal ? first_key : 0, end = walk.queries_before(first_key + Tile::kOwned);
    for (int first_query = earliest; first_query < end; first_query += kWalked) {
      // Documents begin one behind the other: these queries and all that follow look at later keys.
      if (walk.document_of(sample, first_query) >= first_key + Tile::kOwned) break;
      __syncthreads();  // the tiles before have been read
      load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[0], at.q + walk.q.at(sample, head), walk.q,
                                               first_query);
      load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[1], at.dout + walk.out.at(sample, head), walk.out,
                                               first_query);
      for (int i = threadIdx.x; i < kWalked; i += Tile::kThreads) {
        walked_lse[i] = lse_or_padding(lse, first_query + i, walk.q.tokens);
        walked_delta[i] = first_query + i < walk.q.tokens ? delta[first_query + i] : 0.0f;
        walked_document[i] = walk.document_of(sample, first_query + i);
      }
      __syncthreads();
      Accumulator<kWalked> p = {}, dp = {};  // [keys, queries]
      multiply_transposed<kWalked, kDim>(p, tile.own(0), kStride, tile.walked[0], kStride);
#pragma unroll
      for (int j = 0; j < kWalked / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int query = lane.column(j, c), key = first_key + tile.own_rows + lane.row(c);
          const bool seen = walk.sees(first_query + query, key, walked_document[query]);
          p[j][c] = seen ? walk.probability(p[j][c], walked_lse[query]) : 0.0f;
        }
      }
      put_rows<kWalked>(tile.scores, Tile::kScoreStride, p);
      multiply<kDim, kWalked>(dvalues, tile.scores, Tile::kScoreStride, tile.walked[1], kStride);
      multiply_transposed<kWalked, kDim>(dp, tile.own(1), kStride, tile.walked[1], kStride);
#pragma unroll
      for (int j = 0; j < kWalked / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int query = lane.column(j, c);
          p[j][c] *= (dp[j][c] - walked_delta[query]) * walk.slope(p[j][c], walked_lse[query]);
        }
      }
      put_rows<kWalked>(tile.scores, Tile::kScoreStride, p);
      multiply<kDim, kWalked>(dkeys, tile.scores, Tile::kScoreStride, tile.walked[0], kStride);
    }
  }
  const int own_key = first_key + tile.own_rows;
  const int64_t to = walk.dkv.at(sample, kv_head);
  add_to_rows<kDim>(at.dk + to, walk.dkv, own_key, dkeys, at.first_kv);
  add_to_rows<kDim>(at.dv + to, walk.dkv, own_key, dvalues, at.first_kv);
}

// A block owns queries and walks the keys that they see.
template <class T, class Out, int kDim>
__global__ void __launch_bounds__(BackwardTile<T, kDim>::kThreads)
    attention_backward_queries_kernel(AttentionWalk walk, int tiles, BackwardPointers<T, Out> at) {
  using Tile = BackwardTile<T, kDim>;
  constexpr int kWalked = Tile::kWalked, kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  const BackwardTiles<T, kDim> tile(shared);  // owned: queries, dout; walked: keys, values
  const LanePlace lane;

  const int first_query =
      (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * Tile::kOwned;  // the longest first
  const int head = static_cast<int>(blockIdx.x / tiles % walk.q.heads);
  const int64_t sample = blockIdx.x / tiles / walk.q.heads;
  const int64_t keys_at = walk.kv.at(sample, head / walk.group());
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[0], at.q + walk.q.at(sample, head), walk.q,
                                                first_query);
  load_tile<Tile::kOwned, kDim, Tile::kThreads>(tile.owned[1], at.dout + walk.out.at(sample, head), walk.out,
                                                first_query);
  const int own_query = first_query + tile.own_rows;
  float lse[2], delta[2];
  int document[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = own_query + lane.g + half * 8;
    lse[half] = lse_or_padding(at.lse + walk.lse_at(sample, head), query, walk.q.tokens);
    delta[half] = query < walk.q.tokens ? at.delta[walk.lse_at(sample, head) + query] : 0.0f;
    document[half] = walk.document_of(sample, query);
  }

  Accumulator<kDim> dqueries = {};
  const int end = walk.keys_before(first_query + Tile::kOwned);
  const int begin = walk.keys_from(first_query, walk.document_of(sample, first_query), kWalked);
  for (int first_key = begin; first_key < end; first_key += kWalked) {
    __syncthreads();  // the tiles before have been read
    load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[0], at.k + keys_at, walk.kv, first_key);
    load_tile<kWalked, kDim, Tile::kThreads>(tile.walked[1], at.v + keys_at, walk.kv, first_key);
    __syncthreads();
    Accumulator<kWalked> p = {}, dp = {};  // [queries, keys]
    multiply_transposed<kWalked, kDim>(p, tile.own(0), kStride, tile.walked[0], kStride);
    multiply_transposed<kWalked, kDim>(dp, tile.own(1), kStride, tile.walked[1], kStride);
#pragma unroll
    for (int j = 0; j < kWalked / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const bool seen = walk.sees(own_query + lane.row(c), first_key + lane.column(j, c), document[c / 2]);
        const float probability = walk.probability(p[j][c], lse[c / 2]);
        p[j][c] = seen ? probability * (dp[j][c] - delta[c / 2]) * walk.slope(probability, lse[c / 2]) : 0.0f;
      }
    }
    put_rows<kWalked>(tile.scores, Tile::kScoreStride, p);
    multiply<kDim, kWalked>(dqueries, tile.scores, Tile::kScoreStride, tile.walked[0], kStride);
  }
  add_to_rows<kDim>(at.dq + walk.dq.at(sample, head), walk.dq, own_query, dqueries, at.first_q);
}

// Rows of dq, and of dk and dv, are this far apart.
struct GradientStrides {
  int64_t dq, dkv;
};

template <class T, class Out, int kDim>
void launch_backward(const Launcher& run, const AttentionPartShape& shape, const GradientStrides& strides,
                     const BackwardPointers<T, Out>& at, const PartDocuments& documents) {
  using Tile = BackwardTile<T, kDim>;
  AttentionWalk walk = walk_of(shape, at.q, at.k, at.v, at.dout);
  walk.begins = documents.begins;
  walk.keys_at = static_cast<int>(documents.first_key);
  walk.dq = rows_of(shape, shape.q_len, shape.heads, strides.dq);
  walk.dkv = rows_of(shape, shape.kv_len, shape.kv_heads, strides.dkv);
  const auto over = [&](int64_t heads, int64_t tokens, auto kernel) {
    const int64_t tiles = divide_up(tokens, Tile::kOwned);
    const Grid grid{
        .blocks = shape.samples * heads * tiles, .threads = Tile::kThreads, .shared_bytes = Tile::kBytes};
    run(grid, kernel, walk, static_cast<int>(tiles), at);
  };
  over(shape.kv_heads, shape.kv_len, attention_backward_keys_kernel<T, Out, kDim>);
  over(shape.heads, shape.q_len, attention_backward_queries_kernel<T, Out, kDim>);
}

}  // namespace

int64_t own_attention_workspace(const AttentionShape& shape) {
  return shape.rows() * shape.heads * static_cast<int64_t>(sizeof(float));  // delta
}

void own_attention_backward(const AttentionBackward& op, const Launch& launch) {
  const Launcher run("attention_backward", launch);
  const AttentionPartShape shape = only_part(op.shape);
  require_valid(shape);
  require_workspace(launch, own_attention_workspace(op.shape), "attention_backward");
  float* delta = static_cast<float*>(launch.workspace);  // [samples, heads, seq_len], as lse
  attention_delta(
      {shape.type, shape.samples, shape.q_len, shape.heads, shape.head_dim, op.out, op.dout, delta}, launch);
  by_head_dim(shape, [&](auto element, auto dim) {
    using T = decltype(element);
    const T* q = static_cast<const T*>(op.qkv);
    T* dq = static_cast<T*>(op.dqkv);
    const int64_t k = shape.heads * shape.head_dim, v = k + shape.kv_heads * shape.head_dim;  // columns
    launch_backward<T, T, dim.value>(run, shape, {shape.q_stride, shape.kv_stride},
                                     {.q = q,
                                      .k = q + k,
                                      .v = q + v,
                                      .dout = static_cast<const T*>(op.dout),
                                      .lse = op.lse,
                                      .delta = delta,
                                      .dq = dq,
                                      .dk = dq + k,
                                      .dv = dq + v,
                                      .first_q = true,
                                      .first_kv = true},
                                     {.begins = op.documents.begins});
  });
}

void own_attention_part_backward(const AttentionPartBackward& op, const Launch& launch) {
  const Launcher run("attention_part_backward", launch);
  const AttentionPartShape& shape = op.shape;
  require_valid(shape, op.documents);
  by_head_dim(shape, [&](auto element, auto dim) {
    using T = decltype(element);
    launch_backward<T, float, dim.value>(run, shape, {shape.heads * shape.head_dim, op.dkv_stride},
                                         {.q = static_cast<const T*>(op.q),
                                          .k = static_cast<const T*>(op.k),
                                          .v = static_cast<const T*>(op.v),
                                          .dout = static_cast<const T*>(op.dout),
                                          .lse = op.lse,
                                          .delta = op.delta,
                                          .dq = op.dq,
                                          .dk = op.dk,
                                          .dv = op.dv,
                                          .first_q = op.first_q,
                                          .first_kv = op.first_kv},
                                         op.documents);
  });
}

}  // namespace lockstep::kernels::cuda
