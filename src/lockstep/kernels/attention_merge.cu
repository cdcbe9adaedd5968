#include "lockstep/kernels/attention_launch.cuh"
#include "lockstep/kernels/attention_merge.cuh"

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

// Rows of `width`, added to rows of as many, or written over them.
struct RowSums {
  int64_t rows, width;
  float* into;
  int64_t into_stride, from_stride;
  bool write;
};

template <class T>
__global__ void add_part_kernel(RowSums op, const T* from) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kOfThread;
  if (i >= op.rows * op.width) return;
  const int64_t row = i / op.width, column = i % op.width;
  float* into = op.into + row * op.into_stride + column;
  const Vec<T, kOfThread> here = load<kOfThread>(from + row * op.from_stride + column);
  Vec<float, kOfThread> all{};
  if (!op.write) all = load<kOfThread>(into);
#pragma unroll
  for (int j = 0; j < kOfThread; ++j) all[j] += to_float(here[j]);
  store<kOfThread>(into, all);
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

void add_part(const AttentionPartBackward& op, const void* dq, const void* dkv, const Launch& launch) {
  const Launcher run("add_part", launch);
  const AttentionPartShape& shape = op.shape;
  LS_ASSERT(shape.head_dim % kOfThread == 0 && op.dkv_stride % kOfThread == 0);
  LS_ASSERT(is_aligned(16, op.dq) && is_aligned(16, op.dk) && is_aligned(16, op.dv));
  const int64_t q_width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
  const int64_t q_rows = shape.samples * shape.q_len, kv_rows = shape.samples * shape.kv_len;
  by_type(shape.type, [&](auto element) {
    using T = decltype(element);
    const auto add = [&](const RowSums& sums, const T* from) {
      const int64_t threads = sums.rows * sums.width / kOfThread;
      run({.blocks = divide_up(threads, kThreads), .threads = kThreads}, add_part_kernel<T>, sums, from);
    };
    const T* dk = static_cast<const T*>(dkv);
    add({q_rows, q_width, op.dq, q_width, q_width, op.first_q}, static_cast<const T*>(dq));
    add({kv_rows, kv_width, op.dk, op.dkv_stride, 2 * kv_width, op.first_kv}, dk);
    add({kv_rows, kv_width, op.dv, op.dkv_stride, 2 * kv_width, op.first_kv}, dk + kv_width);
  });
}

}  // namespace lockstep::kernels::cuda
