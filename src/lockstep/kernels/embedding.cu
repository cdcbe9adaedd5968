// Token and position embedding. Backward sorts the tokens, so that each row of the table is summed in
// token order by the one warp that owns it.
#include "lockstep/kernels/embedding.h"

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/sort.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRunThreads = 64;  // of one run of equal tokens; each owns up to kRunColumns columns
constexpr int kRunColumns = 4;

template <class T, int N>
__global__ void embedding_kernel(Embedding op) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i >= op.samples * op.seq_len * op.width) return;
  const int64_t row = i / op.width, column = i % op.width;
  const int64_t at = op.tokens[row] - op.first_token;
  Vec<T, N> values;
  if (at >= 0 && at < op.vocab) {
    values = load<N>(static_cast<const T*>(op.table) + at * op.width + column);
  } else {  // in another part of the vocabulary, or (the loader refuses those) in none
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = from_float<T>(0.0f);
  }
  if (op.positions) {
    const int64_t position = op.first_position + row % op.seq_len;
    const Vec<T, N> other = load<N>(static_cast<const T*>(op.positions) + position * op.width + column);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = from_float<T>(to_float(values[j]) + to_float(other[j]));
  }
  store<N>(static_cast<T*>(op.out) + i, values);
}

// Rows of the table as keys.
__global__ void sort_keys_kernel(EmbeddingBackward op, uint32_t* keys, int32_t* rows) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= op.samples * op.seq_len) return;
  const int64_t at = op.tokens[i] - op.first_token;
  keys[i] = static_cast<uint32_t>(at >= 0 && at < op.vocab ? at : op.vocab);  // outside: last, and not summed
  rows[i] = static_cast<int32_t>(i);
}

template <class T, int N>
__global__ void sum_runs_kernel(EmbeddingBackward op, const uint32_t* tokens, const int32_t* rows) {
  const int64_t count = op.samples * op.seq_len;
  const int64_t blocks = (op.width + kRunThreads * N - 1) / (kRunThreads * N);  // of one token
  const int64_t begin = blockIdx.x / blocks;
  const int64_t column = (blockIdx.x % blocks * kRunThreads + threadIdx.x) * N;
  const uint32_t token = tokens[begin];
  if (column >= op.width || token >= op.vocab) return;
  if (begin > 0 && tokens[begin - 1] == token) return;  // not where a run begins
  const T* dout = static_cast<const T*>(op.dout) + column;
  Vec<float, N> sum{};
#pragma unroll 4
  for (int64_t i = begin; i < count && tokens[i] == token; ++i) {
    const Vec<T, N> d = load<N>(dout + rows[i] * op.width);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += to_float(d[j]);
  }
  float* gradient = op.dtable + token * op.width + column;
  if (op.accumulate) {
    const Vec<float, N> before = load<N>(gradient);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += before[j];
  }
  store<N>(gradient, sum);
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

void table_gradient(const EmbeddingBackward& op, const Launch& launch, const Launcher& run) {
  const int64_t count = op.samples * op.seq_len;
  const SortBuffers buffers = sort_buffers(launch, count);
  run({.blocks = divide_up(count, kThreads), .threads = kThreads}, sort_keys_kernel, op, buffers.keys,
      buffers.values);
  sort_pairs(buffers, count, op.vocab, run.stream());
  if (!op.accumulate) run.fill_zero(op.dtable, op.vocab * op.width * static_cast<int64_t>(sizeof(float)));
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    const bool vectors = op.width % kRunColumns == 0 &&
                         is_aligned(kVectorAlignment<T, kRunColumns>, op.dout) && is_aligned(16, op.dtable);
    by_width<kRunColumns>(vectors, [&](auto width) {
      constexpr int N = width.value;
      run({.blocks = count * divide_up(op.width, kRunThreads * N), .threads = kRunThreads},
          sum_runs_kernel<T, N>, op, buffers.sorted_keys, buffers.sorted_values);
    });
  });
}

}  // namespace

void embedding(const Embedding& op, const Launch& launch) {
  const Launcher run("embedding", launch);
  const int64_t count = op.samples * op.seq_len * op.width;
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    by_width<kWide<T>>(fits_vectors<T>(op.width, op.table, op.positions, op.out), [&](auto width) {
      constexpr int N = width.value;
      run({.blocks = divide_up(count, kThreads * N), .threads = kThreads}, embedding_kernel<T, N>, op);
    });
  });
}

void embedding_backward(const EmbeddingBackward& op, const Launch& launch) {
  const Launcher run("embedding_backward", launch);
  table_gradient(op, launch, run);
  if (!op.dpositions) return;
  LS_ASSERT(op.position_rows >= op.first_position + op.seq_len);
  by_type(op.type, [&](auto element) {
    run({.blocks = divide_up(op.position_rows * op.width, kThreads), .threads = kThreads},
        position_kernel<decltype(element)>, op);
  });
}

int64_t embedding_workspace(int64_t tokens, int64_t) { return sort_workspace(tokens); }

}  // namespace lockstep::kernels::cuda
