// LayerNorm and RMSNorm, forward: a row is a team's, in registers; one too wide or too odd for that is a
// block's, which walks it several times.
#include "lockstep/kernels/norm/norm.h"

#include "lockstep/kernels/norm/norm_row.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <class T, int N>
__device__ void add_to(Vec<T, N>& values, const Vec<T, N>& others) {
#pragma unroll
  for (int j = 0; j < N; ++j) values[j] = from_float<T>(to_float(values[j]) + to_float(others[j]));
}

template <class T, int N>
__device__ Vec<T, N> normed(const Vec<T, N>& values, float mean, float rstd, const NormForward& op,
                            int64_t column) {
  const Vec<T, N> w = load<N>(static_cast<const T*>(op.weight) + column);
  Vec<T, N> b{}, out;
  if (op.bias) b = load<N>(static_cast<const T*>(op.bias) + column);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float scaled = (to_float(values[j]) - mean) * rstd * (to_float(w[j]) + op.weight_offset);
    out[j] = from_float<T>(op.bias ? scaled + to_float(b[j]) : scaled);
  }
  return out;
}

__device__ float rstd_of(float squares, const NormForward& op) {
  return 1.0f / sqrtf(squares / static_cast<float>(op.width) + op.epsilon);
}

__device__ void keep_statistics(const NormForward& op, int64_t row, float mean, float rstd) {
  if (threadIdx.x != 0) return;
  if (op.mean) op.mean[row] = mean;
  op.rstd[row] = rstd;
}

template <class T, int kTeam, int kVectors>
__global__ void __launch_bounds__(kTeam* kTeams<kTeam>) norm_row_kernel(NormForward op) {
  constexpr int N = kWide<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kTeams<kTeam> + threadIdx.y;
  if (row >= op.rows) return;
  const int64_t begin = row * op.width;
  const T* x = static_cast<const T*>(op.x) + begin;
  const T* residual = op.residual ? static_cast<const T*>(op.residual) + begin : nullptr;
  Vec<T, N> values[kVectors], others[kVectors];
  for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) { values[v] = load<N>(x + i); });
  if (residual) {
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) { others[v] = load<N>(residual + i); });
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) {
      add_to(values[v], others[v]);
      store<N>(static_cast<T*>(op.sum) + begin + i, values[v]);
    });
  }
  float mean = 0;
  if (op.kind == NormKind::layer) {
    float sum = 0;
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t) {
#pragma unroll
      for (int j = 0; j < N; ++j) sum += to_float(values[v][j]);
    });
    mean = row_sums<kTeam>({sum, 0.0f}, 0).x / static_cast<float>(op.width);
  }
  float squares = 0;
  for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t) {
#pragma unroll
    for (int j = 0; j < N; ++j) squares += (to_float(values[v][j]) - mean) * (to_float(values[v][j]) - mean);
  });
  const float rstd = rstd_of(row_sums<kTeam>({squares, 0.0f}, 1).x, op);
  for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) {
    store<N>(static_cast<T*>(op.y) + begin + i, normed(values[v], mean, rstd, op, i));
  });
  keep_statistics(op, row, mean, rstd);
}

// Any width, a block a row.
template <class T, int N>
__global__ void norm_walk_kernel(NormForward op) {
  const int64_t row = blockIdx.x, begin = row * op.width;
  const T* values = static_cast<const T*>(op.x) + begin;
  if (op.residual) {
    T* sum = static_cast<T*>(op.sum) + begin;
    for_columns<N>(op.width, [&](int64_t i) {
      Vec<T, N> both = load<N>(values + i);
      add_to(both, load<N>(static_cast<const T*>(op.residual) + begin + i));
      store<N>(sum + i, both);
    });
    values = sum;  // a thread reads back what it wrote itself
  }
  float mean = 0;
  if (op.kind == NormKind::layer) {
    float sum = 0;
    for_columns<N>(op.width, [&](int64_t i) {
      const Vec<T, N> v = load<N>(values + i);
#pragma unroll
      for (int j = 0; j < N; ++j) sum += to_float(v[j]);
    });
    mean = block_fold<kRowThreads>(sum, Sum{}) / static_cast<float>(op.width);
  }
  float squares = 0;
  for_columns<N>(op.width, [&](int64_t i) {
    const Vec<T, N> v = load<N>(values + i);
#pragma unroll
    for (int j = 0; j < N; ++j) squares += (to_float(v[j]) - mean) * (to_float(v[j]) - mean);
  });
  const float rstd = rstd_of(block_fold<kRowThreads>(squares, Sum{}), op);
  for_columns<N>(op.width, [&](int64_t i) {
    store<N>(static_cast<T*>(op.y) + begin + i, normed(load<N>(values + i), mean, rstd, op, i));
  });
  keep_statistics(op, row, mean, rstd);
}

}  // namespace

void norm_forward(const NormForward& op, const Launch& launch) {
  const Launcher run("norm_forward", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    const bool vectors = fits_vectors<T>(op.width, op.x, op.residual, op.sum, op.weight, op.bias, op.y);
    const bool done =
        vectors && by_row<T>(op.width, [&](auto team, auto held) {
          constexpr int kTeam = team.value;
          run({.blocks = divide_up(op.rows, kTeams<kTeam>), .threads = kTeam, .teams = kTeams<kTeam>},
              norm_row_kernel<T, kTeam, held.value>, op);
        });
    if (done) return;
    by_width<kWide<T>>(vectors, [&](auto width) {
      run({.blocks = op.rows, .threads = kRowThreads}, norm_walk_kernel<T, width.value>, op);
    });
  });
}

}  // namespace lockstep::kernels::cuda
