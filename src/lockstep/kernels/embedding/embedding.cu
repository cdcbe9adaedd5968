// Token and position embedding.
#include "lockstep/kernels/embedding/embedding.h"

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int N>
__global__ void embedding_kernel(Embedding op) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i >= op.samples * op.seq_len * op.width) return;
  const int64_t row = i / op.width, column = i % op.width;
  const int64_t at = op.tokens[row] - op.first_token;
  Vec<T, N> values;
  if (at >= 0 && at < op.vocab) {
    values = load<N>(static_cast<const T*>(op.table) + at * op.width + column);
    if (op.scale != 1.0f) {
#pragma unroll
      for (int j = 0; j < N; ++j) values[j] = from_float<T>(to_float(values[j]) * op.scale);
    }
  } else {  // in another part of the vocabulary, or (the loader refuses those) in none
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = from_float<T>(0.0f);
  }
  if (op.positions) {
    int64_t position = op.row_positions ? op.row_positions[row] : op.first_position + row % op.seq_len;
    if (op.begins) position -= op.begins[row];
    const Vec<T, N> other = load<N>(static_cast<const T*>(op.positions) + position * op.width + column);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = from_float<T>(to_float(values[j]) + to_float(other[j]));
  }
  store<N>(static_cast<T*>(op.out) + i, values);
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

}  // namespace lockstep::kernels::cuda
