// Softmax cross-entropy in place, a block a row: one pass for maximum and sum, one for the gradient. As much
// of the row as fits is fetched onto the chip at once, ahead of the first pass, and waits there for the
// second.
#include "lockstep/kernels/loss.h"

#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/fp8.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/logits.cuh"
#include "lockstep/kernels/reduce.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

// Threads of a row. Two blocks fit beside each other on a processor, one computing while the other waits for
// memory, as long as what they keep of their rows fits too; a longer row gets a processor for itself.
constexpr int kFewThreads = 256, kManyThreads = 512, kAllThreads = 1024;
constexpr int64_t kMiddleRow = 32 << 10, kLongRow = 110 << 10;  // bytes
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// 2^x in one instruction; results too small for a normal number become zero.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The running maximum of some logits and the sum of 2^(logit - maximum), in units of log 2.
struct Softmax {
  float max = -INFINITY, sum = 0;

  template <class T, int N>
  __device__ void add(const Vec<T, N>& logits) {
    float highest = to_float(logits[0]);
#pragma unroll
    for (int j = 1; j < N; ++j) highest = fmaxf(highest, to_float(logits[j]));
    highest *= kLog2E;
    if (highest > max) {
      sum *= fast_exp2(max - highest);
      max = highest;
    }
    const float shift = max == -INFINITY ? 0.0f : max;  // 2^(-inf) is 0, not 2^(-inf + inf)
#pragma unroll
    for (int j = 0; j < N; ++j) sum += fast_exp2(fmaf(to_float(logits[j]), kLog2E, -shift));
  }
};

template <int kThreads>
__device__ Softmax block_softmax(const Softmax& mine) {
  Softmax all;
  all.max = block_fold<kThreads>(mine.max, Max{});
  all.sum = block_fold<kThreads>(mine.sum == 0 ? 0.0f : mine.sum * fast_exp2(mine.max - all.max), Sum{});
  return all;
}

// A thread's share of the kept columns comes in batches, so that the first are summed while others are on
// their way. A thread reads only what it has fetched itself.
constexpr int kBatches = 4;

// Columns of one batch, a multiple of what the block takes in one stride.
template <int N, int kThreads>
__device__ int64_t batch_columns(int64_t kept) {
  constexpr int64_t kStride = kThreads * N;
  const int64_t strides = (kept + kStride - 1) / kStride;
  return (strides + kBatches - 1) / kBatches * kStride;
}

template <class T, int N>
__device__ void fetch(T* to, const T* from) {
  if constexpr (N * sizeof(T) == 16) {
    __pipeline_memcpy_async(to, from, 16);
  } else {
    store<N>(to, load<N>(from));
  }
}

// Calls function(i) for this thread's columns below `kept`, and commits what it fetched after each batch.
template <int N, int kThreads, class Function>
__device__ void by_batches(int64_t kept, Function function) {
  const int64_t batch = batch_columns<N, kThreads>(kept);
  int64_t i = threadIdx.x * N;
#pragma unroll 1
  for (int b = 0; b < kBatches; ++b) {
    const int64_t end = min((b + 1) * batch, kept);
#pragma unroll 4
    for (; i < end; i += kThreads * N) function(i);
    __pipeline_commit();
  }
}

// This thread's first column that is not kept.
template <int N, int kThreads>
__device__ int64_t after_kept(int64_t kept) {
  constexpr int64_t kStride = kThreads * N;
  const int64_t first = threadIdx.x * N;
  return first + (kept > first ? (kept - first + kStride - 1) / kStride * kStride : 0);
}

// Each thread takes its columns in rising order, so that how many of them are kept changes no bit.
template <class T, int N, int kThreads>
__device__ Softmax sum_row(const T* logits, int64_t vocab, const T* keep, int64_t kept) {
  const int64_t batch = batch_columns<N, kThreads>(kept);
  int64_t i = threadIdx.x * N;
  Softmax mine;
#pragma unroll
  for (int b = 0; b < kBatches; ++b) {
    __pipeline_wait_prior(kBatches - 1 - b);  // those that may still be on their way
    const int64_t end = min((b + 1) * batch, min(kept, vocab));
#pragma unroll 2
    for (; i < end; i += kThreads * N) mine.add(load_logits<T, N>(keep, i, vocab));
  }
#pragma unroll 4
  for (i = after_kept<N, kThreads>(kept); i < vocab; i += kThreads * N)
    mine.add(load_logits<T, N>(logits, i, vocab));
  return mine;
}

// d loss / d logit = (p - 1 at the label) * scale, or nothing where the row does not count.
struct Gradient {
  float max, factor, scale;
  int label;
  bool counts;

  template <class T, int N>
  __device__ Vec<T, N> of(const Vec<T, N>& logits, int64_t column) const {
    const int at = label - static_cast<int>(column);
    Vec<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float scaled = fast_exp2(fmaf(to_float(logits[j]), kLog2E, -max)) * factor;
      out[j] = from_float<T>(!counts ? 0.0f : j == at ? scaled - scale : scaled);
    }
    return out;
  }
};

// A block takes every gridDim-th row. `kept` columns of a row wait in shared memory; as the second pass frees
// them, the next row's come in.
template <class T, int N, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    cross_entropy_kernel(CrossEntropy op, int64_t kept) {
  extern __shared__ __align__(16) unsigned char shared[];
  T* keep = reinterpret_cast<T*>(shared);
  const auto row_at = [&](int64_t row) { return static_cast<T*>(op.logits) + row * op.row; };
  by_batches<N, kThreads>(kept, [&](int64_t i) { fetch<T, N>(keep + i, row_at(blockIdx.x) + i); });
  uint32_t top = 0;
  for (int64_t row = blockIdx.x; row < op.rows; row += gridDim.x) {
    T* logits = row_at(row);
    const int label = op.labels[row];
    const bool counts = label >= 0 && label < op.vocab;  // else ignored, or (the loader refuses those) wrong
    // Read before the barriers below: the gradient is written over it afterwards.
    const float logit_of_label = counts ? to_float(logits[label]) : 0.0f;
    const Softmax softmax = block_softmax<kThreads>(sum_row<T, N, kThreads>(logits, op.vocab, keep, kept));
    if (threadIdx.x == 0) {
      const float loss = (log2f(softmax.sum) + softmax.max) * kLn2 - logit_of_label;
      op.losses[row] = counts ? loss : label == kIgnoredLabel ? 0.0f : NAN;
    }
    if (!op.gradient) continue;
    const float scale = static_cast<float>(op.state->loss_scale / op.inputs->valid_tokens);
    const Gradient gradient{softmax.max, scale / softmax.sum, scale, label, counts};
    const auto finish = [&](int64_t i, const T* from) {
      const Vec<T, N> out = gradient.of(load_logits<T, N>(from, i, op.vocab), i);
      store<N>(logits + i, out);
      if (op.amax != nullptr) top = largest_bits(out, top);
    };
    const T* next = row + gridDim.x < op.rows ? row_at(row + gridDim.x) : nullptr;
    by_batches<N, kThreads>(kept, [&](int64_t i) {
      finish(i, keep);
      if (next != nullptr) fetch<T, N>(keep + i, next + i);
    });
#pragma unroll 4
    for (int64_t i = after_kept<N, kThreads>(kept); i < op.row; i += kThreads * N) finish(i, logits);
  }
  if (op.amax != nullptr) raise_amax<kThreads>(top, op.amax);
}

// Bytes of a row that a block keeps; how much changes no bit.
int64_t most_kept(int64_t row_bytes) {
  constexpr int kReserved = 2048;  // what a block holds statically, and what the system does
  int device = 0, of_processor = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&of_processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
  const int share = row_bytes > kLongRow ? of_processor : of_processor / 2;
  return std::min(row_bytes, std::min<int64_t>(most_shared_bytes(), share) - kReserved);
}

int64_t processors() {
  int device = 0, count = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace

void cross_entropy(const CrossEntropy& given, const Launch& launch) {
  const Launcher run("cross_entropy", launch);
  CrossEntropy op = given;
  op.row = row_of_logits(given);
  if (op.amax != nullptr) run.fill_zero(op.amax, sizeof(float));
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    const int64_t row_bytes = op.row * static_cast<int64_t>(sizeof(T));
    by_width<kWide<T>>(fits_vectors<T>(op.row, op.logits), [&](auto width) {
      constexpr int N = width.value;
      const auto go = [&](auto threads) {
        const int64_t kept = op.gradient ? most_kept(row_bytes) / static_cast<int64_t>(N * sizeof(T)) * N : 0;
        run({.blocks = std::min(op.rows, processors() * (1024 / threads.value)),
             .threads = threads.value,
             .shared_bytes = kept * static_cast<int64_t>(sizeof(T))},
            cross_entropy_kernel<T, N, threads.value>, op, kept);
      };
      if (row_bytes > kLongRow) return go(std::integral_constant<int, kAllThreads>{});
      if (row_bytes > kMiddleRow) return go(std::integral_constant<int, kManyThreads>{});
      go(std::integral_constant<int, kFewThreads>{});
    });
  });
}

}  // namespace lockstep::kernels::cuda
