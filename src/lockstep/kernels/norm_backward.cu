// LayerNorm and RMSNorm, backward.
//
// With g = dy * weight and n the normalised row: dsum = rstd (g - mean(g) - n mean(g n)) + dresidual. A block
// takes a part of the rows; its teams hold a row each in registers, and beside it what they have summed so
// far for weight and bias. Rows too wide or too odd for that are walked twice.
#include "lockstep/kernels/norm_row.cuh"
#include "lockstep/kernels/norm_weight.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

// Adds what the teams of a block have, in their order, and writes it.
template <class T, int kTeam, int kVectors>
__device__ void write_partial(const float (&sums)[kVectors][kWide<T>], int64_t width, float* partial) {
  constexpr int N = kWide<T>, kThreads = kTeam * kTeams<kTeam>;
  if constexpr (kTeams<kTeam> == 1) {
    for_vectors<T, kTeam, kVectors>(width, [&](int v, int64_t i) {
#pragma unroll
      for (int j = 0; j < N; ++j) partial[i + j] = sums[v][j];
    });
  } else {
    __shared__ float of_teams[kTeams<kTeam>][kVectors][N][kTeam];
    __syncthreads();  // what stood there has been read
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int j = 0; j < N; ++j) of_teams[threadIdx.y][v][j][threadIdx.x] = sums[v][j];
    }
    __syncthreads();
    const int first = static_cast<int>(threadIdx.y) * kTeam + static_cast<int>(threadIdx.x);
    for (int column = first; column < width; column += kThreads) {
      const int vector = column / N;
      float sum = 0;
#pragma unroll
      for (int team = 0; team < kTeams<kTeam>; ++team)
        sum += of_teams[team][vector / kTeam][column % N][vector % kTeam];
      partial[column] = sum;
    }
  }
}

template <class T, int kTeam, int kVectors, bool kLayer>
__global__ void __launch_bounds__(kTeam* kTeams<kTeam>, kTeam > kRowThreads ? 1 : 2)
    norm_backward_row_kernel(NormBackward op) {
  constexpr int N = kWide<T>;
  const float inverse_width = 1.0f / static_cast<float>(op.width);
  const T* weight = static_cast<const T*>(op.weight);
  const int64_t part = blockIdx.x, parts = gridDim.x, end = op.rows * (part + 1) / parts;  // part_begin()
  float dweight[kVectors][N] = {}, dbias[kVectors][N] = {};
  int turn = 0;
  for (int64_t row = op.rows * part / parts + threadIdx.y; row < end; row += kTeams<kTeam>, turn ^= 1) {
    const int64_t begin = row * op.width;
    const T* dresidual = op.dresidual ? static_cast<const T*>(op.dresidual) + begin : nullptr;
    Vec<T, N> d[kVectors], x[kVectors], r[kVectors];
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) {
      d[v] = load<N>(static_cast<const T*>(op.dy) + begin + i);
      x[v] = load<N>(static_cast<const T*>(op.sum) + begin + i);
      if (dresidual) r[v] = load<N>(dresidual + i);
    });
    const float mean = kLayer ? op.mean[row] : 0.0f, rstd = op.rstd[row];
    float2 sums{0.0f, 0.0f};  // of g n, and of g
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) {
      const Vec<T, N> w = load<N>(weight + i);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float dy = to_float(d[v][j]), n = (to_float(x[v][j]) - mean) * rstd, g = dy * to_float(w[j]);
        sums.x += g * n;
        dweight[v][j] += dy * n;
        if constexpr (kLayer) {
          sums.y += g;
          dbias[v][j] += dy;
        }
      }
    });
    sums = row_sums<kTeam>(sums, turn);
    const float along = sums.x * inverse_width, total = sums.y * inverse_width;
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) {
      const Vec<T, N> w = load<N>(weight + i);
      Vec<T, N> out;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float n = (to_float(x[v][j]) - mean) * rstd, g = to_float(d[v][j]) * to_float(w[j]);
        const float gradient = rstd * (g - total - n * along);
        out[j] = from_float<T>(dresidual ? gradient + to_float(r[v][j]) : gradient);
      }
      store<N>(static_cast<T*>(op.dsum) + begin + i, out);
    });
  }
  write_partial<T, kTeam, kVectors>(dweight, op.width, op.partial_dweight + part * op.width);
  if constexpr (kLayer)
    write_partial<T, kTeam, kVectors>(dbias, op.width, op.partial_dbias + part * op.width);
}

// Any width, a block a row; the sums for weight and bias are made apart.
template <class T, int N>
__global__ void norm_backward_walk_kernel(NormBackward op) {
  const int64_t row = blockIdx.x, begin = row * op.width;
  const T* dy = static_cast<const T*>(op.dy) + begin;
  const T* sum = static_cast<const T*>(op.sum) + begin;
  const T* weight = static_cast<const T*>(op.weight);
  const bool layer = op.kind == NormKind::layer;
  const float mean = layer ? op.mean[row] : 0.0f, rstd = op.rstd[row];
  float total = 0, along = 0;
  for_columns<N>(op.width, [&](int64_t i) {
    const Vec<T, N> d = load<N>(dy + i), v = load<N>(sum + i), w = load<N>(weight + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float g = to_float(d[j]) * to_float(w[j]);
      total += g;
      along += g * ((to_float(v[j]) - mean) * rstd);
    }
  });
  along = block_fold<kRowThreads>(along, Sum{}) / static_cast<float>(op.width);
  total = layer ? block_fold<kRowThreads>(total, Sum{}) / static_cast<float>(op.width) : 0.0f;

  const T* dresidual = op.dresidual ? static_cast<const T*>(op.dresidual) + begin : nullptr;
  T* dsum = static_cast<T*>(op.dsum) + begin;
  for_columns<N>(op.width, [&](int64_t i) {
    const Vec<T, N> d = load<N>(dy + i), v = load<N>(sum + i), w = load<N>(weight + i);
    Vec<T, N> r{}, out;
    if (dresidual) r = load<N>(dresidual + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float g = to_float(d[j]) * to_float(w[j]);
      const float gradient = rstd * (g - total - (to_float(v[j]) - mean) * rstd * along);
      out[j] = from_float<T>(dresidual ? gradient + to_float(r[j]) : gradient);
    }
    store<N>(dsum + i, out);
  });
}

template <class T>
bool in_registers(const NormBackward& op, const Launcher& run) {
  return by_row<T>(op.width, [&](auto team, auto held) {
    constexpr int kTeam = team.value;
    const Grid grid{.blocks = row_parts(op.rows), .threads = kTeam, .teams = kTeams<kTeam>};
    if (op.kind == NormKind::layer)
      return run(grid, norm_backward_row_kernel<T, kTeam, held.value, true>, op);
    run(grid, norm_backward_row_kernel<T, kTeam, held.value, false>, op);
  });
}

}  // namespace

void norm_backward(const NormBackward& op, const Launch& launch) {
  const Launcher run("norm_backward", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    const bool vectors = fits_vectors<T>(op.width, op.dy, op.sum, op.weight, op.dresidual, op.dsum);
    if (vectors && in_registers<T>(op, run)) return;
    norm_weight_partials(op, run);
    by_width<kWide<T>>(vectors, [&](auto width) {
      run({.blocks = op.rows, .threads = kRowThreads}, norm_backward_walk_kernel<T, width.value>, op);
    });
  });
}

}  // namespace lockstep::kernels::cuda
