#include "lockstep/kernels/attention/attention_launch.cuh"
#include "lockstep/kernels/attention/attention_merge.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kOfLane = 2, kOfThread = 4;  // elements that are taken at a time

// A warp a row of one head.
template <class T>
__global__ void merge_part_kernel(AttentionPart op, const T* part, const float* part_lse) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int64_t heads = op.shape.heads, dim = op.shape.head_dim, q_len = op.shape.q_len;
  if (i >= op.shape.samples * q_len * heads) return;
  const int64_t row = i / heads, head = i % heads, sample = row / q_len;
  const int64_t lse_at = (sample * heads + head) * q_len + row % q_len;
  const MergedLse merged = merge(op.first ? -INFINITY : op.lse[lse_at], part_lse[lse_at]);
  for (int64_t c = threadIdx.x % kWarp * kOfLane; c < dim; c += kWarp * kOfLane) {
    const Vec<T, kOfLane> here = load<kOfLane>(part + i * dim + c);
    Vec<float, kOfLane> all{};
    if (!op.first) all = load<kOfLane>(op.out + i * dim + c);
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) all[j] = all[j] * merged.keep + to_float(here[j]) * merged.factor;
    store<kOfLane>(op.out + i * dim + c, all);
  }
  __syncwarp();  // every lane has read the row's lse
  if (threadIdx.x % kWarp == 0) op.lse[lse_at] = merged.lse;
}

// A thread takes kOfThread elements of a row.
struct Place {
  int64_t row, column;
  bool inside;
  __device__ Place(int64_t rows, int64_t width) {
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kOfThread;
    row = i / width;
    column = i % width;
    inside = row < rows;
  }
};

template <class T>
__global__ void add_rows_kernel(AddRows op) {
  const Place at(op.rows, op.width);
  if (!at.inside) return;
  float* into = op.into + at.row * op.into_stride + at.column;
  const auto here = load<kOfThread>(static_cast<const T*>(op.from) + at.row * op.from_stride + at.column);
  Vec<float, kOfThread> all{};
  if (!op.write) all = load<kOfThread>(into);
#pragma unroll
  for (int j = 0; j < kOfThread; ++j) all[j] += to_float(here[j]);
  store<kOfThread>(into, all);
}

template <class T>
__global__ void round_rows_kernel(RoundRows op) {
  const Place at(op.rows, op.width);
  if (!at.inside) return;
  const auto here = load<kOfThread>(op.from + at.row * op.from_stride + at.column);
  Vec<T, kOfThread> rounded;
#pragma unroll
  for (int j = 0; j < kOfThread; ++j) rounded[j] = from_float<T>(here[j]);
  store<kOfThread>(static_cast<T*>(op.to) + at.row * op.to_stride + at.column, rounded);
}

template <class Op>
Grid grid_of(const Op& op, int64_t other_stride, const void* values, const float* sums) {
  LS_ASSERT(op.width % kOfThread == 0 && op.from_stride % kOfThread == 0 && other_stride % kOfThread == 0);
  LS_ASSERT(is_aligned(16, sums));
  LS_ASSERT(is_aligned(static_cast<int>(kOfThread * device::size_of(op.type)), values));
  return {.blocks = divide_up(op.rows * op.width / kOfThread, kThreads), .threads = kThreads};
}

}  // namespace

void merge_part(const AttentionPart& op, const void* out, const float* lse, const Launch& launch) {
  const Launcher run("merge_part", launch);
  LS_ASSERT(op.shape.head_dim % kOfLane == 0);
  const int64_t rows = op.shape.samples * op.shape.q_len * op.shape.heads;
  by_type(op.shape.type, [&](auto element) {
    using T = decltype(element);
    run({.blocks = divide_up(rows * kWarp, kThreads), .threads = kThreads}, merge_part_kernel<T>, op,
        static_cast<const T*>(out), lse);
  });
}

void add_rows(const AddRows& op, const Launch& launch) {
  const Launcher run("add_rows", launch);
  const Grid grid = grid_of(op, op.into_stride, op.from, op.into);
  by_type(op.type, [&](auto element) { run(grid, add_rows_kernel<decltype(element)>, op); });
}

void round_rows(const RoundRows& op, const Launch& launch) {
  const Launcher run("round_rows", launch);
  const Grid grid = grid_of(op, op.to_stride, op.to, op.from);
  by_type(op.type, [&](auto element) { run(grid, round_rows_kernel<decltype(element)>, op); });
}

}  // namespace lockstep::kernels::cuda
