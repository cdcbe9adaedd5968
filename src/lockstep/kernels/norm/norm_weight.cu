// Gradients of what is shared by every row: norm weights and biases.
//
// Each part of the rows is summed by threads that own columns, then the parts in order: an order of the shape
// alone.
#include "lockstep/kernels/norm/norm_weight.cuh"

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/table.cuh"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 128;

struct Partials {
  int64_t rows, width, parts;
  const void* dy;
  const void* sum;    // null: no weight gradient, and so are the next three
  const float* mean;  // null: zero
  const float* rstd;
  float* dweight;
  float* dbias;  // null: not wanted
};

// A thread a column.
template <class T>
__global__ void row_sums_kernel(Partials op) {
  const int64_t blocks = (op.width + kThreads - 1) / kThreads;  // of one part
  const int64_t part = blockIdx.x / blocks;
  const int64_t column = blockIdx.x % blocks * kThreads + threadIdx.x;
  if (column >= op.width) return;
  const T* dy = static_cast<const T*>(op.dy) + column;
  const T* sum = static_cast<const T*>(op.sum) + column;
  float weight = 0, bias = 0;
  const int64_t end = op.rows * (part + 1) / op.parts;
#pragma unroll 4
  for (int64_t row = op.rows * part / op.parts; row < end; ++row) {  // part_begin()
    const float d = to_float(dy[row * op.width]);
    if (op.dweight) {
      const float mean = op.mean ? op.mean[row] : 0.0f;
      weight += d * ((to_float(sum[row * op.width]) - mean) * op.rstd[row]);
    }
    bias += d;
  }
  if (op.dweight) op.dweight[part * op.width + column] = weight;
  if (op.dbias) op.dbias[part * op.width + column] = bias;
}

template <class T>
void row_sums(const Partials& op, const Launcher& run) {
  run({.blocks = op.parts * divide_up(op.width, kThreads), .threads = kThreads}, row_sums_kernel<T>, op);
}

constexpr int kFoldColumns = 32, kFoldGroups = 32;

// Groups of neighbouring parts side by side, then the groups in order.
__global__ void fold_parts_kernel(NormWeightBackward op, int64_t blocks) {  // of them for the weight
  __shared__ float of_groups[kFoldGroups][kFoldColumns];
  const bool bias = blockIdx.x >= blocks;
  const float* partial = bias ? op.partial_bias : op.partial;
  float* gradient = bias ? op.bias_gradient : op.gradient;
  const int64_t column = (blockIdx.x - (bias ? blocks : 0)) * kFoldColumns + threadIdx.x;
  const int64_t group = threadIdx.y, end = op.parts * (group + 1) / kFoldGroups;
  float sum = 0;
  if (column < op.width) {
#pragma unroll 8
    for (int64_t part = op.parts * group / kFoldGroups; part < end; ++part) {
      sum += partial[part * op.width + column];
    }
  }
  of_groups[group][threadIdx.x] = sum;
  __syncthreads();
  if (group > 0 || column >= op.width) return;
#pragma unroll
  for (int other = 1; other < kFoldGroups; ++other) sum += of_groups[other][threadIdx.x];
  gradient[column] = op.accumulate ? gradient[column] + sum : sum;
}

void fold_parts(const NormWeightBackward& op, const Launcher& run) {
  const int64_t blocks = divide_up(op.width, kFoldColumns);
  run({.blocks = op.partial_bias ? 2 * blocks : blocks, .threads = kFoldColumns, .teams = kFoldGroups},
      fold_parts_kernel, op, blocks);
}

// The same sums where vectors fit: 16 bytes a load, several rows of a part side by side.
constexpr int kColumnLanes = 32, kRowGroups = 8;

// Adds the groups' sums in their order; a thread writes one column, which lies at place j * lanes + lane.
template <int N>
__device__ void write_groups(const float (&sums)[N], int64_t first, int64_t width, float* partial) {
  __shared__ float of_groups[kRowGroups][kColumnLanes * N];
  __syncthreads();  // what stood there has been read
#pragma unroll
  for (int j = 0; j < N; ++j) of_groups[threadIdx.y][j * kColumnLanes + threadIdx.x] = sums[j];
  __syncthreads();
  const int i = threadIdx.y * kColumnLanes + threadIdx.x;
  const int64_t own = first + i % kColumnLanes * N + i / kColumnLanes;
  if (i >= kColumnLanes * N || own >= width) return;
  float sum = 0;
#pragma unroll
  for (int group = 0; group < kRowGroups; ++group) sum += of_groups[group][i];
  partial[own] = sum;
}

template <class T, int N, bool kWeight>
__global__ void column_sums_kernel(Partials op) {
  const int64_t blocks = (op.width + kColumnLanes * N - 1) / (kColumnLanes * N);  // of one part
  const int64_t part = blockIdx.x / blocks;
  const int64_t first = blockIdx.x % blocks * kColumnLanes * N;
  const int64_t column = first + threadIdx.x * N;
  float weight[N] = {}, bias[N] = {};
  if (column < op.width) {
    const T* dy = static_cast<const T*>(op.dy) + column;
    const T* sum = static_cast<const T*>(op.sum) + column;
    const int64_t end = op.rows * (part + 1) / op.parts;
#pragma unroll 4
    for (int64_t row = op.rows * part / op.parts + threadIdx.y; row < end;
         row += kRowGroups) {  // part_begin()
      const Vec<T, N> d = load<N>(dy + row * op.width);
      if constexpr (kWeight) {
        const float mean = op.mean ? op.mean[row] : 0.0f, rstd = op.rstd[row];
        const Vec<T, N> v = load<N>(sum + row * op.width);
#pragma unroll
        for (int j = 0; j < N; ++j) weight[j] += to_float(d[j]) * ((to_float(v[j]) - mean) * rstd);
      }
#pragma unroll
      for (int j = 0; j < N; ++j) bias[j] += to_float(d[j]);
    }
  }
  if constexpr (kWeight) write_groups<N>(weight, first, op.width, op.dweight + part * op.width);
  if (op.dbias) write_groups<N>(bias, first, op.width, op.dbias + part * op.width);
}

template <class T>
void column_sums(const Partials& op, const Launcher& run) {
  constexpr int N = kWide<T>;
  const Grid grid{.blocks = op.parts * divide_up(op.width, kColumnLanes * N),
                  .threads = kColumnLanes,
                  .teams = kRowGroups};
  if (op.dweight) return run(grid, column_sums_kernel<T, N, true>, op);
  run(grid, column_sums_kernel<T, N, false>, op);
}

void partial_sums(const Partials& op, device::DType type, const Launcher& run) {
  by_type(type, [&](auto element) {
    using T = decltype(element);
    if (fits_vectors<T>(op.width, op.dy, op.sum)) return column_sums<T>(op, run);
    row_sums<T>(op, run);
  });
}

}  // namespace

void norm_weight_partials(const NormBackward& op, const Launcher& run) {
  partial_sums({.rows = op.rows,
                .width = op.width,
                .parts = row_parts(op.rows),
                .dy = op.dy,
                .sum = op.sum,
                .mean = op.mean,
                .rstd = op.rstd,
                .dweight = op.partial_dweight,
                .dbias = op.partial_dbias},
               op.type, run);
}

void norm_weight_backward(const NormWeightBackward& op, const Launch& launch) {
  fold_parts(op, Launcher("norm_weight_backward", launch));
}

void bias_backward(const BiasBackward& op, const Launch& launch) {
  const Launcher run("bias_backward", launch);
  const int64_t parts = row_parts(op.rows);
  require_workspace(launch, bias_backward_workspace(op.rows, op.width), "bias_backward");
  float* partial = static_cast<float*>(launch.workspace);
  partial_sums({.rows = op.rows,
                .width = op.width,
                .parts = parts,
                .dy = op.dy,
                .sum = nullptr,
                .mean = nullptr,
                .rstd = nullptr,
                .dweight = nullptr,
                .dbias = partial},
               op.type, run);
  fold_parts({.parts = parts,
              .width = op.width,
              .partial = partial,
              .gradient = op.gradient,
              .accumulate = op.accumulate},
             run);
}

}  // namespace lockstep::kernels::cuda
