// RMSNorm of queries and keys in packed rows: a warp takes a run; of the weights' gradients, a thread a
// column.
#include "lockstep/kernels/norm/head_norm.h"

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/reduce/reduce.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// What a warp works on: a run of a row, or (the last of a row) what is only copied.
template <class T>
struct WarpRun {
  int64_t row, run, at, width, whole;  // at: in the whole operand; whole: what a mean is divided by
  const T* weight;                     // null: copied
  bool inside;

  __device__ explicit WarpRun(const HeadRuns& runs) {
    const int64_t of_row = runs.q_runs + runs.k_runs + 1;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
    const int64_t q_end = runs.q_runs * runs.q_width, k_end = q_end + runs.k_runs * runs.k_width;
    row = i / of_row;
    run = i % of_row;
    inside = row < runs.rows;
    at = row * (k_end + runs.rest);
    if (run < runs.q_runs) {
      at += run * runs.q_width;
      width = runs.q_width;
      whole = runs.q_whole > 0 ? runs.q_whole : width;
      weight = static_cast<const T*>(runs.q_weight);
    } else if (run < runs.q_runs + runs.k_runs) {
      at += q_end + (run - runs.q_runs) * runs.k_width;
      width = runs.k_width;
      whole = runs.k_whole > 0 ? runs.k_whole : width;
      weight = static_cast<const T*>(runs.k_weight);
    } else {
      at += k_end;
      width = whole = runs.rest;
      weight = nullptr;
    }
  }
  __device__ int64_t statistic(const HeadRuns& runs) const { return row * (runs.q_runs + runs.k_runs) + run; }
};

template <class T>
__device__ void copy_run(const T* from, T* to, int64_t width) {
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp) to[i] = from[i];
}

// In every lane.
template <class T>
__device__ float sum_of_squares(const T* x, int64_t width) {
  float squares = 0;
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp) squares += to_float(x[i]) * to_float(x[i]);
  return warp_fold(squares, Sum{});
}

template <class T>
__global__ void head_norm_kernel(HeadNorm op) {
  const WarpRun<T> run(op.runs);
  if (!run.inside) return;
  const T* x = static_cast<const T*>(op.x) + run.at;
  T* y = static_cast<T*>(op.y) + run.at;
  if (run.weight == nullptr) return copy_run(x, y, run.width);
  const float squares = op.squares ? op.squares[run.row * 2 + run.run] : sum_of_squares(x, run.width);
  const float rstd = 1.0f / sqrtf(squares / static_cast<float>(run.whole) + op.epsilon);
  for (int64_t i = threadIdx.x % kWarp; i < run.width; i += kWarp)
    y[i] = from_float<T>(to_float(x[i]) * rstd * (to_float(run.weight[i]) + op.runs.weight_offset));
  if (threadIdx.x % kWarp == 0) op.rstd[run.statistic(op.runs)] = rstd;
}

template <class T>
__global__ void head_norm_backward_kernel(HeadNormBackward op) {
  const WarpRun<T> run(op.runs);
  if (!run.inside) return;
  const T* dy = static_cast<const T*>(op.dy) + run.at;
  const T* x = static_cast<const T*>(op.x) + run.at;
  T* dx = static_cast<T*>(op.dx) + run.at;
  if (run.weight == nullptr) return copy_run(dy, dx, run.width);
  const float rstd = op.rstd[run.statistic(op.runs)], offset = op.runs.weight_offset;
  float along = 0;
  for (int64_t i = threadIdx.x % kWarp; i < run.width; i += kWarp)
    along += to_float(dy[i]) * (to_float(run.weight[i]) + offset) * (to_float(x[i]) * rstd);
  along = warp_fold(along, Sum{}) / static_cast<float>(run.whole);
  if (op.dsquares) {  // x * rstd * along * rstd is 2 x * what the sum of squares gets
    if (threadIdx.x % kWarp == 0) op.dsquares[run.row * 2 + run.run] = -0.5f * along * rstd * rstd;
    along = 0;
  }
  for (int64_t i = threadIdx.x % kWarp; i < run.width; i += kWarp) {
    const float g = to_float(dy[i]) * (to_float(run.weight[i]) + offset);
    dx[i] = from_float<T>(rstd * (g - to_float(x[i]) * rstd * along));
  }
}

template <class T>
__global__ void head_squares_kernel(HeadSquares op) {
  const WarpRun<T> run(op.runs);
  if (!run.inside || run.run >= 2) return;
  const float squares = sum_of_squares(static_cast<const T*>(op.x) + run.at, run.width);
  if (threadIdx.x % kWarp == 0) op.squares[run.row * 2 + run.run] = squares;
}

template <class T>
__global__ void head_squares_backward_kernel(HeadSquaresBackward op) {
  const WarpRun<T> run(op.runs);
  if (!run.inside) return;
  const T* x = static_cast<const T*>(op.x) + run.at;
  const T* passed = static_cast<const T*>(op.dpassed) + run.at;
  T* dx = static_cast<T*>(op.dx) + run.at;
  if (run.run >= 2) return copy_run(passed, dx, run.width);
  const float twice = 2.0f * op.dsquares[run.row * 2 + run.run];
  for (int64_t i = threadIdx.x % kWarp; i < run.width; i += kWarp)
    dx[i] = from_float<T>(to_float(passed[i]) + to_float(x[i]) * twice);
}

// Rows of a part, and the runs of each, in order.
template <class T>
__global__ void head_norm_weight_kernel(HeadNormBackward op, int64_t parts) {
  const HeadRuns& runs = op.runs;
  const int64_t columns = runs.q_width + runs.k_width, blocks = (columns + kThreads - 1) / kThreads;
  const int64_t part = blockIdx.x / blocks;
  int64_t column = blockIdx.x % blocks * kThreads + threadIdx.x;
  if (column >= columns) return;
  const int64_t q_end = runs.q_runs * runs.q_width,
                row_width = q_end + runs.k_runs * runs.k_width + runs.rest;
  const bool query = column < runs.q_width;
  const int64_t count = query ? runs.q_runs : runs.k_runs, width = query ? runs.q_width : runs.k_width;
  const int64_t first = query ? 0 : q_end, first_run = query ? 0 : runs.q_runs;
  if (!query) column -= runs.q_width;
  float sum = 0;
  const int64_t end = runs.rows * (part + 1) / parts;
  for (int64_t row = runs.rows * part / parts; row < end; ++row) {  // part_begin()
    for (int64_t run = 0; run < count; ++run) {
      const int64_t at = row * row_width + first + run * width + column;
      const float rstd = op.rstd[row * (runs.q_runs + runs.k_runs) + first_run + run];
      sum += to_float(static_cast<const T*>(op.dy)[at]) * (to_float(static_cast<const T*>(op.x)[at]) * rstd);
    }
  }
  (query ? op.partial_q : op.partial_k)[part * width + column] = sum;
}

Grid grid_of(const HeadRuns& runs) {
  return {.blocks = divide_up(runs.rows * (runs.runs() + 1), kWarps), .threads = kThreads};
}

}  // namespace

void head_norm(const HeadNorm& op, const Launch& launch) {
  const Launcher run("head_norm", launch);
  by_type(op.runs.type,
          [&](auto element) { run(grid_of(op.runs), head_norm_kernel<decltype(element)>, op); });
}

void head_squares(const HeadSquares& op, const Launch& launch) {
  const Launcher run("head_squares", launch);
  by_type(op.runs.type,
          [&](auto element) { run(grid_of(op.runs), head_squares_kernel<decltype(element)>, op); });
}

void head_squares_backward(const HeadSquaresBackward& op, const Launch& launch) {
  const Launcher run("head_squares_backward", launch);
  by_type(op.runs.type,
          [&](auto element) { run(grid_of(op.runs), head_squares_backward_kernel<decltype(element)>, op); });
}

void head_norm_backward(const HeadNormBackward& op, const Launch& launch) {
  const Launcher run("head_norm_backward", launch);
  const int64_t parts = row_parts(op.runs.rows);
  by_type(op.runs.type, [&](auto element) {
    using T = decltype(element);
    run(grid_of(op.runs), head_norm_backward_kernel<T>, op);
    const int64_t blocks = divide_up(op.runs.q_width + op.runs.k_width, kThreads);
    run({.blocks = parts * blocks, .threads = kThreads}, head_norm_weight_kernel<T>, op, parts);
  });
}

}  // namespace lockstep::kernels::cuda
