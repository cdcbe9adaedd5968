// Softmax cross-entropy in place, a block a row: one pass for maximum and sum, one for the gradient. The row
// waits on the chip between the two, as much of it as fits.
#include "lockstep/kernels/loss/loss.h"

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/fp8/fp8.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/loss/logits.cuh"
#include "lockstep/kernels/reduce/reduce.cuh"
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

template <class T, int N, int kThreads>
__device__ void write_zeros(T* logits, int64_t row) {
  Vec<T, N> zeros;
#pragma unroll
  for (int j = 0; j < N; ++j) zeros[j] = from_float<T>(0.0f);
  for (int64_t i = threadIdx.x * N; i < row; i += kThreads * N) store<N>(logits + i, zeros);
}

// d loss / d logit = (p - 1 at the label) * scale.
template <class T, int N>
__device__ Vec<T, N> gradient_of(const Vec<T, N>& logits, float max, float factor, float scale, int label,
                                 float cap) {
  Vec<T, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float scaled = fast_exp2(fmaf(to_float(logits[j]), kLog2E, -max)) * factor;
    const float gradient = j == label ? scaled - scale : scaled;
    out[j] = from_float<T>(cap == 0 ? gradient : gradient * cap_slope(to_float(logits[j]), cap));
  }
  return out;
}

// `kept` columns of the row wait in shared memory, where each thread finds what it put there itself.
template <class T, int N, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    cross_entropy_kernel(CrossEntropy op, int64_t kept) {
  extern __shared__ __align__(16) unsigned char shared[];
  T* keep = reinterpret_cast<T*>(shared);
  const int64_t row = blockIdx.x;
  T* logits = static_cast<T*>(op.logits) + row * op.row;
  const int label = op.labels[row];
  if (label < 0 || label >= op.vocab) {  // ignored, or (the loader refuses those) not a number
    if (threadIdx.x == 0) op.losses[row] = label == kIgnoredLabel ? 0.0f : NAN;
    if (op.gradient) write_zeros<T, N, kThreads>(logits, op.row);
    return;
  }
  // Read before the barriers below: the gradient is written over it afterwards.
  const float logit_of_label = to_float(logits[label]);
  Softmax mine;
#pragma unroll 4
  for (int64_t i = threadIdx.x * N; i < op.vocab; i += kThreads * N) {
    const Vec<T, N> values = load_logits<T, N>(logits, i, op.vocab);
    if (i < kept) store<N>(keep + i, values);
    mine.add(values);
  }
  const Softmax softmax = block_softmax<kThreads>(mine);
  if (threadIdx.x == 0) op.losses[row] = (log2f(softmax.sum) + softmax.max) * kLn2 - logit_of_label;
  if (!op.gradient) return;
  const float scale = static_cast<float>(op.state->loss_scale / op.inputs->valid_tokens) *
                      (op.weights == nullptr ? 1.0f : op.weights[row]);
  const float factor = scale / softmax.sum;
  uint32_t top = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x * N; i < op.row; i += kThreads * N) {
    const Vec<T, N> values = load_logits<T, N>(i < kept ? keep : logits, i, op.vocab);
    const Vec<T, N> gradient =
        gradient_of<T, N>(values, softmax.max, factor, scale, label - static_cast<int>(i), op.softcap);
    store<N>(logits + i, gradient);
    if (op.amax != nullptr) top = largest_bits(gradient, top);
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
        run({.blocks = op.rows,
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
