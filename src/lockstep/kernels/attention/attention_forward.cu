// Attention, forward: a block owns a tile of queries and walks the keys that they see with a running maximum
// and sum, so the scores never leave the chip. A part's result is then merged into what earlier parts gave; a
// whole sequence is its own only part.
#include "lockstep/kernels/attention/attention_launch.cuh"
#include "lockstep/kernels/attention/attention_own.cuh"

namespace lockstep::kernels::cuda {
namespace {

// Out: T for a whole sequence, float for what is still to be merged.
template <class T, class Out>
struct ForwardPointers {
  const T *q, *k, *v;
  Out* out;
  float* lse;
  bool first;
};

// To units of log 2; keys that a query does not see count for nothing.
template <int kKeys>
__device__ void scale_and_mask(Accumulator<kKeys>& scores, const AttentionWalk& walk, int first_query,
                               int first_key, const int (&documents)[2]) {
  const LanePlace lane;
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const bool seen = walk.sees(first_query + lane.row(c), first_key + lane.column(j, c), documents[c / 2]);
      scores[j][c] = seen ? walk.score_of(scores[j][c]) : -INFINITY;
    }
  }
}

// Folds the softmax into the lse of the warp's rows: by what its sums, and by what the result so far, are to
// be multiplied.
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
    const MergedLse both = merge(before, of_part);
    merged[half] = both.lse;
    keep[half] = both.keep;
    factor[half] = sum > 0 ? both.factor / sum : 0.0f;
  }
  __syncwarp();  // four lanes have read each row
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + lane.g + half * 8;
    if (lane.t == 0 && row < rows) lse[row] = merged[half];
  }
}

template <class T, class Out, int kDim>
__global__ void __launch_bounds__(ForwardTile<T, kDim>::kThreads)
    attention_forward_kernel(AttentionWalk walk, int tiles, ForwardPointers<T, Out> at) {
  using Tile = ForwardTile<T, kDim>;
  constexpr int kQueries = Tile::kQueries, kKeys = Tile::kKeys, kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  T* queries = reinterpret_cast<T*>(shared);    // [kQueries, kDim]
  T* keys = queries + kQueries * kStride;       // [kKeys, kDim]
  T* values = keys + kKeys * kStride;           // [kKeys, kDim]
  T* probabilities = values + kKeys * kStride;  // [kQueries, kKeys]

  const int tile = tiles - 1 - static_cast<int>(blockIdx.x % tiles);  // the longest walks start first
  const int head = static_cast<int>(blockIdx.x / tiles % walk.q.heads);
  const int64_t sample = blockIdx.x / tiles / walk.q.heads;
  const int64_t keys_at = walk.kv.at(sample, head / walk.group());
  const int own_rows = static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp;  // of this warp, within the tile
  const int first_query = tile * kQueries;
  T* own_probabilities = probabilities + own_rows * Tile::kScoreStride;

  load_tile<kQueries, kDim, Tile::kThreads>(queries, at.q + walk.q.at(sample, head), walk.q, first_query);
  Accumulator<kDim> result = {};
  RunningSoftmax softmax;
  const int end = walk.keys_before(first_query + kQueries);
  const int begin = walk.keys_from(first_query, walk.document_of(sample, first_query), kKeys);
  const int documents[2] = {walk.document_of(sample, first_query + own_rows + LanePlace().row(0)),
                            walk.document_of(sample, first_query + own_rows + LanePlace().row(2))};
  for (int first_key = begin; first_key < end; first_key += kKeys) {
    __syncthreads();  // the tiles before have been read
    load_tile<kKeys, kDim, Tile::kThreads>(keys, at.k + keys_at, walk.kv, first_key);
    load_tile<kKeys, kDim, Tile::kThreads>(values, at.v + keys_at, walk.kv, first_key);
    __syncthreads();
    Accumulator<kKeys> scores = {};
    multiply_transposed<kKeys, kDim>(scores, queries + own_rows * kStride, kStride, keys, kStride);
    scale_and_mask<kKeys>(scores, walk, first_query + own_rows, first_key, documents);
    float rescale[2];
    softmax.add<kKeys>(scores, rescale);
    rescale_rows<kDim>(result, rescale);
    put_rows<kKeys>(own_probabilities, Tile::kScoreStride, scores);
    multiply<kDim, kKeys>(result, own_probabilities, Tile::kScoreStride, values, kStride);
  }

  float factor[2], keep[2];
  merge_lse(softmax, at.lse + walk.lse_at(sample, head), first_query + own_rows, walk.q.tokens, at.first,
            factor, keep);
  merge_rows<kDim>(at.out + walk.out.at(sample, head), walk.out, first_query + own_rows, result, factor, keep,
                   at.first);
}

template <class T, class Out, int kDim>
void launch_forward(const Launcher& run, const AttentionPartShape& shape, const ForwardPointers<T, Out>& at,
                    const PartDocuments& documents) {
  using Tile = ForwardTile<T, kDim>;
  AttentionWalk walk = walk_of(shape, at.q, at.k, at.v);
  walk.begins = documents.begins;
  walk.keys_at = static_cast<int>(documents.first_key);
  const int64_t tiles = divide_up(shape.q_len, Tile::kQueries);
  run({.blocks = shape.samples * shape.heads * tiles,
       .threads = Tile::kThreads,
       .shared_bytes = Tile::kBytes},
      attention_forward_kernel<T, Out, kDim>, walk, static_cast<int>(tiles), at);
}

}  // namespace

void check_head_dim(int64_t head_dim) {
  if (head_dim > kMostHeadDim) {
    throw base::ConfigError(414, "CUDA attention supports head sizes up to 256, but this model has " +
                                     std::to_string(head_dim) + "; raise model.heads");
  }
}

void own_attention_forward(const AttentionForward& op, const Launch& launch) {
  const Launcher run("attention_forward", launch);
  const AttentionPartShape shape = only_part(op.shape);
  require_valid(shape);
  by_head_dim(shape, [&](auto element, auto dim) {
    using T = decltype(element);
    const T* q = static_cast<const T*>(op.qkv);
    const T* k = q + shape.heads * shape.head_dim;
    const T* v = k + shape.kv_heads * shape.head_dim;
    launch_forward<T, T, dim.value>(run, shape, {q, k, v, static_cast<T*>(op.out), op.lse, true},
                                    {.begins = op.documents.begins});
  });
}

void own_attention_part(const AttentionPart& op, const Launch& launch) {
  const Launcher run("attention_part", launch);
  require_valid(op.shape, op.documents);
  by_head_dim(op.shape, [&](auto element, auto dim) {
    using T = decltype(element);
    launch_forward<T, float, dim.value>(run, op.shape,
                                        {static_cast<const T*>(op.q), static_cast<const T*>(op.k),
                                         static_cast<const T*>(op.v), op.out, op.lse, op.first},
                                        op.documents);
  });
}

}  // namespace lockstep::kernels::cuda
