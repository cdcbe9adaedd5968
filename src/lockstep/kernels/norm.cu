// LayerNorm and RMSNorm, forward and the gradient of their input: a row is a warp's, or a block's when wide.
#include "lockstep/kernels/norm.h"

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/norm_weight.cuh"
#include "lockstep/kernels/reduce.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kWidestOfWarp = 1024;  // columns
constexpr int kWarpsOfBlock = 4;
constexpr int kBlock = 256;

// Calls function(i) for the first column of every vector that this thread owns: the same in every pass,
// so a thread may read back what it wrote.
template <int kTeam, int N, class Function>
__device__ void for_columns(int64_t width, Function function) {
  for (int64_t i = threadIdx.x * N; i < width; i += kTeam * N) function(i);
}

// sum = round(x + residual); returns what will be normalised.
template <class T, int N, int kTeam>
__device__ const T* add_residual(const NormForward& op, int64_t begin) {
  const T* x = static_cast<const T*>(op.x) + begin;
  if (!op.residual) return x;
  const T* residual = static_cast<const T*>(op.residual) + begin;
  T* sum = static_cast<T*>(op.sum) + begin;
  for_columns<kTeam, N>(op.width, [&](int64_t i) {
    Vec<T, N> values = load<N>(x + i);
    const Vec<T, N> others = load<N>(residual + i);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = from_float<T>(to_float(values[j]) + to_float(others[j]));
    store<N>(sum + i, values);
  });
  return sum;
}

template <class T, int N, int kTeam>
__global__ void norm_forward_kernel(NormForward op) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= op.rows) return;
  const int64_t begin = row * op.width;
  const T* values = add_residual<T, N, kTeam>(op, begin);

  float mean = 0;
  if (op.kind == NormKind::layer) {
    float sum = 0;
    for_columns<kTeam, N>(op.width, [&](int64_t i) {
      const Vec<T, N> v = load<N>(values + i);
#pragma unroll
      for (int j = 0; j < N; ++j) sum += to_float(v[j]);
    });
    mean = team_sum<kTeam>(sum) / static_cast<float>(op.width);
  }
  float squares = 0;
  for_columns<kTeam, N>(op.width, [&](int64_t i) {
    const Vec<T, N> v = load<N>(values + i);
#pragma unroll
    for (int j = 0; j < N; ++j) squares += (to_float(v[j]) - mean) * (to_float(v[j]) - mean);
  });
  const float variance = team_sum<kTeam>(squares) / static_cast<float>(op.width);
  const float rstd = 1.0f / sqrtf(variance + op.epsilon);

  const T* weight = static_cast<const T*>(op.weight);
  const T* bias = static_cast<const T*>(op.bias);
  T* y = static_cast<T*>(op.y) + begin;
  for_columns<kTeam, N>(op.width, [&](int64_t i) {
    const Vec<T, N> v = load<N>(values + i), w = load<N>(weight + i);
    Vec<T, N> b{}, out;
    if (bias) b = load<N>(bias + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float scaled = (to_float(v[j]) - mean) * rstd * to_float(w[j]);
      out[j] = from_float<T>(bias ? scaled + to_float(b[j]) : scaled);
    }
    store<N>(y + i, out);
  });
  if (threadIdx.x == 0) {
    if (op.mean) op.mean[row] = mean;
    op.rstd[row] = rstd;
  }
}

// With g = dy * weight and n the normalised row: dsum = rstd (g - mean(g) - n mean(g n)) + dresidual.
template <class T, int N, int kTeam>
__global__ void norm_backward_kernel(NormBackward op) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= op.rows) return;
  const int64_t begin = row * op.width;
  const T* dy = static_cast<const T*>(op.dy) + begin;
  const T* sum = static_cast<const T*>(op.sum) + begin;
  const T* weight = static_cast<const T*>(op.weight);
  const bool layer = op.kind == NormKind::layer;
  const float mean = layer ? op.mean[row] : 0.0f, rstd = op.rstd[row];

  float total = 0, along = 0;
  for_columns<kTeam, N>(op.width, [&](int64_t i) {
    const Vec<T, N> d = load<N>(dy + i), v = load<N>(sum + i), w = load<N>(weight + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float g = to_float(d[j]) * to_float(w[j]);
      total += g;
      along += g * ((to_float(v[j]) - mean) * rstd);
    }
  });
  along = team_sum<kTeam>(along) / static_cast<float>(op.width);
  total = layer ? team_sum<kTeam>(total) / static_cast<float>(op.width) : 0.0f;

  const T* dresidual = op.dresidual ? static_cast<const T*>(op.dresidual) + begin : nullptr;
  T* dsum = static_cast<T*>(op.dsum) + begin;
  for_columns<kTeam, N>(op.width, [&](int64_t i) {
    const Vec<T, N> d = load<N>(dy + i), v = load<N>(sum + i), w = load<N>(weight + i);
    Vec<T, N> r{}, out;
    if (dresidual) r = load<N>(dresidual + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float g = to_float(d[j]) * to_float(w[j]);
      const float normalised = (to_float(v[j]) - mean) * rstd;
      const float gradient = rstd * (g - total - normalised * along);
      out[j] = from_float<T>(dresidual ? gradient + to_float(r[j]) : gradient);
    }
    store<N>(dsum + i, out);
  });
}

// Which of a kernel's instances runs, and over what grid, depends on the width alone.
template <class Function>
void by_team(int64_t rows, int64_t width, Function function) {
  if (width <= kWidestOfWarp) {
    function(std::integral_constant<int, kWarp>{},
             Grid{.blocks = divide_up(rows, kWarpsOfBlock), .threads = kWarp, .teams = kWarpsOfBlock});
  } else {
    function(std::integral_constant<int, kBlock>{}, Grid{.blocks = rows, .threads = kBlock});
  }
}

}  // namespace

void norm_forward(const NormForward& op, const Launch& launch) {
  const Launcher run("norm_forward", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    const bool vectors = fits_vectors<T>(op.width, op.x, op.residual, op.sum, op.weight, op.bias, op.y);
    by_width<kWide<T>>(vectors, [&](auto width) {
      by_team(op.rows, op.width, [&](auto team, const Grid& grid) {
        run(grid, norm_forward_kernel<T, width.value, team.value>, op);
      });
    });
  });
}

void norm_backward(const NormBackward& op, const Launch& launch) {
  const Launcher run("norm_backward", launch);
  norm_weight_partials(op, run);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    const bool vectors = fits_vectors<T>(op.width, op.dy, op.sum, op.weight, op.dresidual, op.dsum);
    by_width<kWide<T>>(vectors, [&](auto width) {
      by_team(op.rows, op.width, [&](auto team, const Grid& grid) {
        run(grid, norm_backward_kernel<T, width.value, team.value>, op);
      });
    });
  });
}

}  // namespace lockstep::kernels::cuda
