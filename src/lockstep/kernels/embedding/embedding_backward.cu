// Gradients of token and position tables. Tokens are sorted, so that each row of the table is summed in token
// order by whoever owns it: no atomics.
//
// A frequent token would keep one block busy for long, so its run of equal tokens is cut into pieces of
// kPiece from where it begins. A block sums the pieces that begin in its window of sorted places. A run of
// one piece goes to the table at once; the others' pieces are kept and then added up in order.
#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/embedding/embedding.h"
#include "lockstep/kernels/embedding/sort.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/reduce/reduce.cuh"
#include "lockstep/kernels/table.cuh"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = kWarp;    // also places in a window: a lane each
constexpr int kRunThreads = 64;  // of a window; each owns up to kRunColumns columns
constexpr int kRunColumns = 4;

int64_t windows_of(int64_t count) { return divide_up(count, kPiece); }

// A window can hold the first piece of one long run and a later piece of another.
int64_t kept_bytes(int64_t count, int64_t width) {
  return divide_up(2 * windows_of(count) * width * 4, 256) * 256;
}

// Rows of the table as keys. Without tokens they are positions in documents.
__global__ void sort_keys_kernel(EmbeddingBackward op, uint32_t* keys, int32_t* rows) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= op.samples * op.seq_len) return;
  const int64_t at =
      op.tokens ? op.tokens[i] - op.first_token : op.first_position + i % op.seq_len - op.begins[i];
  keys[i] = static_cast<uint32_t>(at >= 0 && at < op.vocab ? at : op.vocab);  // outside: last, and not summed
  rows[i] = static_cast<int32_t>(i);
}

struct Runs {
  int64_t count;
  const uint32_t* tokens;  // sorted
  const int32_t* rows;     // of dout, in the same order
  float* kept;             // [2 * windows, width]: of a window, a later piece and a first piece

  // Where the run begins that place i belongs to.
  __device__ int64_t begin_of(int64_t i) const {
    int64_t low = 0, high = i;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (tokens[middle] < tokens[i]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  __device__ bool same(int64_t i, uint32_t token) const { return i < count && tokens[i] == token; }
};

template <int N>
__device__ void add_to_table(const EmbeddingBackward& op, uint32_t token, int64_t column, Vec<float, N> sum) {
  float* gradient = op.dtable + token * op.width + column;
#pragma unroll
  for (int j = 0; j < N; ++j) sum[j] = __fmul_rn(sum[j], op.scale);  // rounded before it is added
  if (op.accumulate) {
    const Vec<float, N> before = load<N>(gradient);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += before[j];
  }
  store<N>(gradient, sum);
}

// Of `length` places from `begin` on.
template <class T, int N>
__device__ Vec<float, N> sum_of_piece(const Runs& runs, int64_t begin, int length, const T* dout,
                                      int64_t width) {
  Vec<float, N> sum{};
#pragma unroll 8
  for (int i = 0; i < length; ++i) {
    const Vec<T, N> d = load<N>(dout + runs.rows[begin + i] * width);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += to_float(d[j]);
  }
  return sum;
}

template <class T, int N>
__global__ void sum_pieces_kernel(EmbeddingBackward op, Runs runs) {
  const int64_t blocks = (op.width + kRunThreads * N - 1) / (kRunThreads * N);  // of one window
  const int64_t window = blockIdx.x / blocks;
  const int64_t column = (blockIdx.x % blocks * kRunThreads + threadIdx.x) * N;
  const bool mine = column < op.width;  // the others still help to look
  const int lane = threadIdx.x % kWarp;
  const int64_t first = window * kPiece, place = first + lane;
  const bool inside = place < runs.count && runs.tokens[place] < op.vocab;
  const bool begins = inside && (place == 0 || runs.tokens[place - 1] != runs.tokens[place]);
  const unsigned before = __ballot_sync(kAllLanes, begins) & (kAllLanes >> (kWarp - 1 - lane));
  int64_t run = 0;
  if (before != 0) {
    run = first + (kWarp - 1 - __clz(static_cast<int>(before)));
  } else if (inside) {
    run = runs.begin_of(first);
  }
  unsigned pieces = __ballot_sync(kAllLanes, inside && (place - run) % kPiece == 0);
  for (; pieces != 0; pieces &= pieces - 1) {
    const int64_t begin = first + __ffs(static_cast<int>(pieces)) - 1;
    const uint32_t token = runs.tokens[begin];
    const int length = __popc(__ballot_sync(kAllLanes, runs.same(begin + lane, token)));
    const bool opens = begin == 0 || runs.tokens[begin - 1] != token;
    const bool goes_on = length == kPiece && runs.same(begin + kPiece, token);
    if (!mine) continue;
    const Vec<float, N> sum =
        sum_of_piece<T, N>(runs, begin, length, static_cast<const T*>(op.dout) + column, op.width);
    if (opens && !goes_on) {
      add_to_table<N>(op, token, column, sum);
    } else {
      store<N>(runs.kept + (2 * window + (opens ? 1 : 0)) * op.width + column, sum);
    }
  }
}

// Runs of several pieces: the block of the window where one begins adds them up.
template <int N>
__global__ void fold_pieces_kernel(EmbeddingBackward op, Runs runs) {
  const int64_t blocks = (op.width + kRunThreads * N - 1) / (kRunThreads * N);
  const int64_t window = blockIdx.x / blocks;
  const int64_t column = (blockIdx.x % blocks * kRunThreads + threadIdx.x) * N;
  const int64_t first = window * kPiece, place = first + threadIdx.x % kWarp;
  const bool opens = place < runs.count && runs.tokens[place] < op.vocab &&
                     (place == 0 || runs.tokens[place - 1] != runs.tokens[place]) &&
                     runs.same(place + kPiece, runs.tokens[place]);
  const unsigned found = __ballot_sync(kAllLanes, opens);  // one at most: it is longer than the window
  if (found == 0 || column >= op.width) return;
  const int64_t begin = first + __ffs(static_cast<int>(found)) - 1;
  const uint32_t token = runs.tokens[begin];
  const int64_t pieces = [&] {  // the last that begins inside the run, found by doubling and halving
    int64_t low = 1, high = 2;
    while (runs.same(begin + high * kPiece, token)) low = high, high *= 2;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (runs.same(begin + middle * kPiece, token) ? low : high) = middle;
    }
    return low + 1;
  }();
  Vec<float, N> sum = load<N>(runs.kept + (2 * window + 1) * op.width + column);
#pragma unroll 8
  for (int64_t piece = 1; piece < pieces; ++piece) {
    const Vec<float, N> next = load<N>(runs.kept + 2 * (window + piece) * op.width + column);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += next[j];
  }
  add_to_table<N>(op, token, column, sum);
}

template <class T>
__global__ void position_kernel(EmbeddingBackward op) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t used = op.seq_len * op.width, at = i - op.first_position * op.width;
  if (i >= op.position_rows * op.width) return;
  float sum = 0;
  if (at >= 0 && at < used) {
    const T* dout = static_cast<const T*>(op.dout) + at;
#pragma unroll 4
    for (int64_t sample = 0; sample < op.samples; ++sample) sum += to_float(dout[sample * used]);
  }
  op.dpositions[i] = op.accumulate ? op.dpositions[i] + sum : sum;
}

Runs sorted_runs(const EmbeddingBackward& op, const Launch& launch, const Launcher& run) {
  const int64_t count = op.samples * op.seq_len, kept = kept_bytes(count, op.width);
  require_workspace(launch, embedding_workspace(count, op.width), "embedding_backward");
  Launch rest = launch;
  rest.workspace = static_cast<char*>(launch.workspace) + kept;
  rest.workspace_bytes -= kept;
  const SortBuffers buffers = sort_buffers(rest, count);
  run({.blocks = divide_up(count, kThreads), .threads = kThreads}, sort_keys_kernel, op, buffers.keys,
      buffers.values);
  sort_pairs(buffers, count, op.vocab, run.stream());
  return {count, buffers.sorted_keys, buffers.sorted_values, static_cast<float*>(launch.workspace)};
}

void table_gradient(const EmbeddingBackward& op, const Launch& launch, const Launcher& run) {
  const Runs runs = sorted_runs(op, launch, run);
  if (!op.accumulate) run.fill_zero(op.dtable, op.vocab * op.width * static_cast<int64_t>(sizeof(float)));
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    const bool vectors = op.width % kRunColumns == 0 &&
                         is_aligned(kVectorAlignment<T, kRunColumns>, op.dout) && is_aligned(16, op.dtable) &&
                         is_aligned(16, runs.kept);
    by_width<kRunColumns>(vectors, [&](auto width) {
      constexpr int N = width.value;
      const Grid grid{.blocks = windows_of(runs.count) * divide_up(op.width, kRunThreads * N),
                      .threads = kRunThreads};
      run(grid, sum_pieces_kernel<T, N>, op, runs);
      run(grid, fold_pieces_kernel<N>, op, runs);
    });
  });
}

// The table of positions, where documents begin anywhere.
EmbeddingBackward positions_as_table(EmbeddingBackward op) {
  op.tokens = nullptr;
  op.dtable = op.dpositions;
  op.vocab = op.position_rows;
  op.scale = 1;
  return op;
}

}  // namespace

void embedding_backward(const EmbeddingBackward& op, const Launch& launch) {
  const Launcher run("embedding_backward", launch);
  if (op.dtable) table_gradient(op, launch, run);
  if (!op.dpositions) return;
  LS_ASSERT(op.position_rows >= op.first_position + op.seq_len);
  if (op.begins) return table_gradient(positions_as_table(op), launch, run);
  by_type(op.type, [&](auto element) {
    run({.blocks = divide_up(op.position_rows * op.width, kThreads), .threads = kThreads},
        position_kernel<decltype(element)>, op);
  });
}

int64_t embedding_workspace(int64_t tokens, int64_t width) {
  return kept_bytes(tokens, width) + sort_workspace(tokens);
}

}  // namespace lockstep::kernels::cuda
