// Attention against some of the keys, forward: a block owns a tile of queries and walks the part's keys as
// attention_forward.cu does, then merges its rows into what earlier parts gave.
#include "lockstep/kernels/attention_part.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct PartPointers {
  const T *q, *k, *v;
  float *out, *lse;
  bool first;
};

// To units of log 2; keys that a query does not see count for nothing.
template <int kKeys>
__device__ void scale_and_mask(Accumulator<kKeys>& scores, const PartSizes& sizes, int first_query,
                               int first_key) {
  const LanePlace lane;
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const bool seen = sizes.seen(first_query + lane.row(c), first_key + lane.column(j, c));
      scores[j][c] = seen ? scores[j][c] * (sizes.queries.scale * kLog2E) : -INFINITY;
    }
  }
}

// Folds the part's softmax into the lse of the warp's rows: by what the part's sums, and by what the result
// so far, are to be multiplied.
__device__ void merge_lse(const RunningSoftmax& softmax, float* lse, int first_row, int rows, bool first,
                          float (&factor)[2], float (&keep)[2]) {
  const LanePlace lane;
  float merged[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + lane.g + half * 8;
    const float sum = warp_fold<4>(softmax.sum[half], Sum{});
    const float of_part = softmax.max[half] * kLn2 + logf(sum);
    const float before = first || row >= rows ? -INFINITY : lse[row];
    const float top = fmaxf(before, of_part);
    merged[half] = first ? of_part : top + logf(expf(before - top) + expf(of_part - top));
    keep[half] = expf(before - merged[half]);
    factor[half] = first ? 1.0f / sum : expf(of_part - merged[half]) / sum;
  }
  __syncwarp();  // four lanes have read each row
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + lane.g + half * 8;
    if (lane.t == 0 && row < rows) lse[row] = merged[half];
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(ForwardTile<T, kDim>::kThreads)
    attention_part_kernel(PartSizes sizes, int tiles, PartPointers<T> at) {
  using Tile = ForwardTile<T, kDim>;
  constexpr int kQueries = Tile::kQueries, kKeys = Tile::kKeys, kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  T* queries = reinterpret_cast<T*>(shared);    // [kQueries, kDim]
  T* keys = queries + kQueries * kStride;       // [kKeys, kDim]
  T* values = keys + kKeys * kStride;           // [kKeys, kDim]
  T* probabilities = values + kKeys * kStride;  // [kQueries, kKeys]

  const int tile = tiles - 1 - static_cast<int>(blockIdx.x % tiles);  // the longest walks start first
  const int head = static_cast<int>(blockIdx.x / tiles % sizes.queries.heads);
  const int64_t sample = blockIdx.x / tiles / sizes.queries.heads;
  const int64_t keys_at = sizes.keys.query_at(sample, head / sizes.group());
  const int own_rows = static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp;  // of this warp, within the tile
  const int first_query = tile * kQueries;
  T* own_probabilities = probabilities + own_rows * Tile::kScoreStride;

  load_tile<kQueries, kDim, Tile::kThreads>(queries, at.q + sizes.queries.query_at(sample, head),
                                            sizes.queries.qkv_width, first_query, sizes.queries);
  Accumulator<kDim> result = {};
  RunningSoftmax softmax;
  const int end = sizes.causal ? min(first_query + kQueries, sizes.keys.seq_len) : sizes.keys.seq_len;
  for (int first_key = 0; first_key < end; first_key += kKeys) {
    __syncthreads();  // the tiles before have been read
    load_tile<kKeys, kDim, Tile::kThreads>(keys, at.k + keys_at, sizes.keys.qkv_width, first_key, sizes.keys);
    load_tile<kKeys, kDim, Tile::kThreads>(values, at.v + keys_at, sizes.keys.qkv_width, first_key,
                                           sizes.keys);
    __syncthreads();
    Accumulator<kKeys> scores = {};
    multiply_transposed<kKeys, kDim>(scores, queries + own_rows * kStride, kStride, keys, kStride);
    scale_and_mask<kKeys>(scores, sizes, first_query + own_rows, first_key);
    float rescale[2];
    softmax.add<kKeys>(scores, rescale);
    rescale_rows<kDim>(result, rescale);
    put_rows<kKeys>(own_probabilities, Tile::kScoreStride, scores);
    multiply<kDim, kKeys>(result, own_probabilities, Tile::kScoreStride, values, kStride);
  }

  float factor[2], keep[2];
  merge_lse(softmax, at.lse + sizes.queries.lse_at(sample, head), first_query + own_rows,
            sizes.queries.seq_len, at.first, factor, keep);
  merge_rows<kDim>(at.out + sizes.queries.out_at(sample, head), sizes.queries.out_width(),
                   first_query + own_rows, result, factor, keep, at.first, sizes.queries);
}

}  // namespace

int64_t attention_part_workspace(const AttentionPartShape&) { return 0; }

void attention_part(const AttentionPart& op, const Launch& launch) {
  const Launcher run("attention_part", launch);
  const AttentionPartShape& shape = op.shape;
  const PartSizes sizes = part_sizes(shape, op.q, op.k, op.v);
  by_head_dim(shape, [&](auto element, auto dim) {
    using T = decltype(element);
    using Tile = ForwardTile<T, dim.value>;
    const PartPointers<T> at = {.q = static_cast<const T*>(op.q),
                                .k = static_cast<const T*>(op.k),
                                .v = static_cast<const T*>(op.v),
                                .out = op.out,
                                .lse = op.lse,
                                .first = op.first};
    const int64_t tiles = divide_up(shape.q_len, Tile::kQueries);
    run({.blocks = shape.samples * shape.heads * tiles,
         .threads = Tile::kThreads,
         .shared_bytes = Tile::kBytes},
        attention_part_kernel<T, dim.value>, sizes, static_cast<int>(tiles), at);
  });
}

}  // namespace lockstep::kernels::cuda
