// What is summed chunk by chunk: squares for the gradient norm, words for the parameter hash; and the
// one small kernel that turns the sums into the scalars of the step.
#include <cmath>

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/optimizer/optimizer.h"
#include "lockstep/kernels/reduce/hash_word.h"
#include "lockstep/kernels/reduce/reduce.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kSquareThreads = 1024;  // a bucket of a small model has fewer chunks than a GPU has processors
constexpr int kFinishThreads = 256;
constexpr int64_t kGroup = 64;  // chunks that one thread of norm_finish folds

// Four neighbours are a thread's, whether they can be loaded at once or not: the order is the same.
__device__ Vec<float, 4> load_four(const float* from, int left) {
  if (left >= 4 && reinterpret_cast<uintptr_t>(from) % 16 == 0) return load<4>(from);
  Vec<float, 4> values{};
  for (int j = 0; j < 4 && j < left; ++j) values[j] = from[j];
  return values;
}

__global__ void __launch_bounds__(kSquareThreads) square_sums_kernel(SquareSums op) {
  const Chunk chunk = op.chunks[blockIdx.x];
  const float* gradient = op.gradient + chunk.begin;
  double sum = 0;
#pragma unroll 8
  for (int i = threadIdx.x * 4; i < chunk.count; i += kSquareThreads * 4) {
    const Vec<float, 4> values = load_four(gradient + i, chunk.count - i);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum += static_cast<double>(values[j]) * static_cast<double>(values[j]);
  }
  sum = block_fold<kSquareThreads>(sum, Sum{});
  if (threadIdx.x == 0) op.sums[chunk.number(blockIdx.x)] = sum;
}

__global__ void hash_chunks_kernel(HashChunks op) {
  constexpr uint64_t kSalt0 = kHashSalts[0], kSalt1 = kHashSalts[1];
  const Chunk chunk = op.chunks[blockIdx.x];
  const uint32_t* words = reinterpret_cast<const uint32_t*>(op.values) + chunk.begin;
  unsigned long long first = 0, second = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < chunk.count; i += kThreads) {
    const uint32_t word = words[i];
    first += hash_word(word, static_cast<uint64_t>(i), kSalt0);
    second += hash_word(word, static_cast<uint64_t>(i), kSalt1);
  }
  first = block_fold<kThreads>(first, Sum{});
  second = block_fold<kThreads>(second, Sum{});
  if (threadIdx.x == 0) {
    op.hashes[blockIdx.x * 2] = first;
    op.hashes[blockIdx.x * 2 + 1] = second;
  }
}

// The sum of all chunks: groups of neighbours by one thread each, then the groups in order by thread 0.
__device__ double fold_chunks(const double* sums, int64_t count) {
  __shared__ double of_groups[kFinishThreads];
  double total = 0;
  for (int64_t base = 0; base < count; base += kFinishThreads * kGroup) {
    const int64_t begin = base + threadIdx.x * kGroup;
    double sum = 0;
#pragma unroll 8
    for (int64_t i = begin; i < begin + kGroup && i < count; ++i) sum += sums[i];
    of_groups[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int group = 0; group < kFinishThreads; ++group) total += of_groups[group];
    }
    __syncthreads();
  }
  return total;  // in thread 0
}

// The loss scale of fp16: backed off when a gradient overflowed, grown after enough good steps in a row.
__device__ void adapt_scale(const NormPolicy& policy, StepState& state) {
  if (state.apply == 0) {
    state.loss_scale *= policy.backoff;
    state.good_steps = 0;
  } else if (state.good_steps >= policy.growth_interval) {
    state.loss_scale = fminf(state.loss_scale * policy.growth, policy.max_scale);
    state.good_steps = 0;
  }
}

// One thread's work; the same formulas as the CPU's.
__device__ void finish_step(double square_sum, double loss_sum, const NormFinish& op) {
  StepState& state = *op.state;
  const double scale = state.loss_scale;
  const bool halted = ends_run(op.policy, state);
  state.step = op.inputs->step;
  state.stop = op.inputs->stop;
  state.loss = loss_sum / op.inputs->valid_tokens;
  state.grad_norm = sqrt(square_sum) / scale;
  state.apply = isfinite(square_sum) && !halted ? 1 : 0;
  double clip = 1;
  if (state.apply && op.policy.max_norm > 0) clip = fmin(1.0, op.policy.max_norm / (state.grad_norm + 1e-6));
  state.clip = static_cast<float>(clip / scale);
  if (state.apply) {
    state.beta1_power *= op.policy.beta1;
    state.beta2_power *= op.policy.beta2;
    ++state.applied;
    ++state.good_steps;
  } else {
    ++state.skipped;
  }
  if (op.policy.dynamic_scale) adapt_scale(op.policy, state);  // after clip, which is of this step's scale
}

__global__ void norm_finish_kernel(NormFinish op) {
  const double square_sum = fold_chunks(op.sums, op.chunk_count);
  if (threadIdx.x > 0) return;
  double loss_sum = 0;
  for (int64_t slice = 0; slice < op.slices; ++slice) loss_sum += op.slice_losses[slice];
  finish_step(square_sum, loss_sum, op);
}

}  // namespace

void square_sums(const SquareSums& op, const Launch& launch) {
  const Launcher run("square_sums", launch);
  run({.blocks = op.chunk_count, .threads = kSquareThreads}, square_sums_kernel, op);
}

void norm_finish(const NormFinish& op, const Launch& launch) {
  const Launcher run("norm_finish", launch);
  run({.blocks = 1, .threads = kFinishThreads}, norm_finish_kernel, op);
}

void hash_chunks(const HashChunks& op, const Launch& launch) {
  const Launcher run("hash_chunks", launch);
  run({.blocks = op.chunk_count, .threads = kThreads}, hash_chunks_kernel, op);
}

}  // namespace lockstep::kernels::cuda
