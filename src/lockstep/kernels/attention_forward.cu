// Causal attention, forward: a block owns a tile of queries and walks the keys up to its diagonal with a
// running maximum and sum, so the scores never leave the chip.
#include "lockstep/kernels/attention_launch.cuh"
#include "lockstep/kernels/attention_own.cuh"

namespace lockstep::kernels::cuda {
namespace {

// To units of log 2; keys after the query count for nothing.
template <int kKeys>
__device__ void scale_and_mask(Accumulator<kKeys>& scores, float scale, int first_query, int first_key) {
  const LanePlace lane;
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const bool seen = first_key + lane.column(j, c) <= first_query + lane.row(c);
      scores[j][c] = seen ? scores[j][c] * scale : -INFINITY;
    }
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(ForwardTile<T, kDim>::kThreads)
    attention_forward_kernel(AttentionSizes sizes, int tiles, const T* qkv, T* out, float* lse) {
  using Tile = ForwardTile<T, kDim>;
  constexpr int kQueries = Tile::kQueries, kKeys = Tile::kKeys, kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  T* queries = reinterpret_cast<T*>(shared);    // [kQueries, kDim]
  T* keys = queries + kQueries * kStride;       // [kKeys, kDim]
  T* values = keys + kKeys * kStride;           // [kKeys, kDim]
  T* probabilities = values + kKeys * kStride;  // [kQueries, kKeys]

  const int tile = tiles - 1 - static_cast<int>(blockIdx.x % tiles);  // the longest walks start first
  const int head = static_cast<int>(blockIdx.x / tiles % sizes.heads);
  const int64_t sample = blockIdx.x / tiles / sizes.heads;
  const int kv_head = head / sizes.group();
  const int own_rows = static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp;  // of this warp, within the tile
  const int first_query = tile * kQueries;
  T* own_probabilities = probabilities + own_rows * Tile::kScoreStride;

  load_tile<kQueries, kDim, Tile::kThreads>(queries, qkv + sizes.query_at(sample, head), sizes.qkv_width,
                                            first_query, sizes);
  Accumulator<kDim> result = {};
  RunningSoftmax softmax;
  const int end = min(first_query + kQueries, sizes.seq_len);
  for (int first_key = 0; first_key < end; first_key += kKeys) {
    __syncthreads();  // the tiles before have been read
    load_tile<kKeys, kDim, Tile::kThreads>(keys, qkv + sizes.key_at(sample, kv_head), sizes.qkv_width,
                                           first_key, sizes);
    load_tile<kKeys, kDim, Tile::kThreads>(values, qkv + sizes.value_at(sample, kv_head), sizes.qkv_width,
                                           first_key, sizes);
    __syncthreads();
    Accumulator<kKeys> scores = {};
    multiply_transposed<kKeys, kDim>(scores, queries + own_rows * kStride, kStride, keys, kStride);
    scale_and_mask<kKeys>(scores, sizes.scale * kLog2E, first_query + own_rows, first_key);
    float rescale[2];
    softmax.add<kKeys>(scores, rescale);
    rescale_rows<kDim>(result, rescale);
    put_rows<kKeys>(own_probabilities, Tile::kScoreStride, scores);
    multiply<kDim, kKeys>(result, own_probabilities, Tile::kScoreStride, values, kStride);
  }

  const LanePlace lane;
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = warp_fold<4>(softmax.sum[half], Sum{});
    inverse[half] = 1.0f / sum;
    const int query = first_query + own_rows + lane.g + half * 8;
    if (lane.t == 0 && query < sizes.seq_len) {
      lse[sizes.lse_at(sample, head) + query] = softmax.max[half] * kLn2 + logf(sum);
    }
  }
  write_rows<kDim>(out + sizes.out_at(sample, head), sizes.out_width(), first_query + own_rows, result,
                   inverse, sizes);
}

}  // namespace

void check_shape(const AttentionShape& shape) {
  LS_ASSERT(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && shape.head_dim > 0);
  LS_ASSERT(shape.seq_len < int64_t{1} << 30);
  if (shape.head_dim > kMostHeadDim) {
    throw base::ConfigError(414, "attention on CUDA takes heads of up to 256 elements, and this model has " +
                                     std::to_string(shape.head_dim) + "; raise model.heads");
  }
}

void own_attention_forward(const AttentionForward& op, const Launch& launch) {
  const Launcher run("attention_forward", launch);
  const AttentionSizes sizes = sizes_of(op.shape, op.qkv);
  by_head_dim(op.shape, [&](auto element, auto dim) {
    using T = decltype(element);
    using Tile = ForwardTile<T, dim.value>;
    const int64_t tiles = divide_up(op.shape.seq_len, Tile::kQueries);
    run({.blocks = op.shape.samples * op.shape.heads * tiles,
         .threads = Tile::kThreads,
         .shared_bytes = Tile::kBytes},
        attention_forward_kernel<T, dim.value>, sizes, static_cast<int>(tiles), static_cast<const T*>(op.qkv),
        static_cast<T*>(op.out), op.lse);
  });
}

}  // namespace lockstep::kernels::cuda
