// Cross-entropy over a part of the vocabulary, a block a row, and the sum of the losses.
#include "lockstep/kernels/loss/loss.h"

#include <cmath>

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/loss/logits.cuh"
#include "lockstep/kernels/reduce/reduce.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kSumThreads = 256;  // the most parts that row_parts() makes

// The running maximum of some logits and the sum of exp(logit - maximum).
struct Softmax {
  float max = -INFINITY, sum = 0;

  template <class T, int N>
  __device__ void add(const Vec<T, N>& logits) {
    float highest = max;
#pragma unroll
    for (int j = 0; j < N; ++j) highest = fmaxf(highest, to_float(logits[j]));
    if (highest > max) sum *= expf(max - highest);
    max = highest;
    const float shift = max == -INFINITY ? 0.0f : max;  // exp(-inf) is 0, not exp(-inf + inf)
#pragma unroll
    for (int j = 0; j < N; ++j) sum += expf(to_float(logits[j]) - shift);
  }
};

__device__ Softmax block_softmax(const Softmax& mine) {
  Softmax all;
  all.max = block_fold<kThreads>(mine.max, Max{});
  all.sum = block_fold<kThreads>(mine.sum == 0 ? 0.0f : mine.sum * expf(mine.max - all.max), Sum{});
  return all;
}

template <class T, int N>
__device__ void write_gradient(T* logits, int64_t vocab, int64_t row, const Softmax& softmax, int64_t label,
                               float scale, float cap) {
  const float inverse = 1.0f / softmax.sum;
  for (int64_t i = threadIdx.x * N; i < row; i += kThreads * N) {
    Vec<T, N> values = load_logits<T, N>(logits, i, vocab);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float probability = expf(to_float(values[j]) - softmax.max) * inverse;
      const float gradient = (probability - (i + j == label ? 1.0f : 0.0f)) * scale;
      values[j] = from_float<T>(cap == 0 ? gradient : gradient * cap_slope(to_float(values[j]), cap));
    }
    store<N>(logits + i, values);
  }
}

template <class T, int N>
__device__ void write_zeros(T* logits, int64_t row) {
  Vec<T, N> zeros;
#pragma unroll
  for (int j = 0; j < N; ++j) zeros[j] = from_float<T>(0.0f);
  for (int64_t i = threadIdx.x * N; i < row; i += kThreads * N) store<N>(logits + i, zeros);
}

// This thread's share of a row.
template <class T, int N>
__device__ Softmax softmax_of(const T* logits, int64_t vocab) {
  Softmax mine;
  for (int64_t i = threadIdx.x * N; i < vocab; i += kThreads * N)
    mine.add(load_logits<T, N>(logits, i, vocab));
  return mine;
}

template <class T, int N>
__global__ void vocab_stats_kernel(VocabStats op) {
  const int64_t row = blockIdx.x;
  const T* logits = static_cast<const T*>(op.logits) + row * op.row;
  const Softmax softmax = block_softmax(softmax_of<T, N>(logits, op.vocab));
  if (threadIdx.x != 0) return;
  const int64_t label = op.labels[row] - op.first;
  const bool here = op.labels[row] >= 0 && label >= 0 && label < op.vocab;
  op.stats[row * 3] = softmax.max;
  op.stats[row * 3 + 1] = softmax.sum;
  op.stats[row * 3 + 2] = here ? to_float(logits[label]) : 0.0f;
}

// Every thread folds the parts' stats of the row, in the order of the parts.
template <class T, int N>
__global__ void vocab_cross_entropy_kernel(VocabCrossEntropy op) {
  const int64_t row = blockIdx.x;
  T* logits = static_cast<T*>(op.logits) + row * op.row;
  const int label = op.labels[row];
  if (label < 0) {  // ignored, or (the loader refuses those) not a number
    if (threadIdx.x == 0) op.losses[row] = label == kIgnoredLabel ? 0.0f : NAN;
    if (op.gradient) write_zeros<T, N>(logits, op.row);
    return;
  }
  const float* stats = op.stats + row * 3;
  const int64_t stride = op.rows * 3;
  Softmax whole;
  float logit_of_label = 0;
  for (int64_t part = 0; part < op.parts; ++part) whole.max = fmaxf(whole.max, stats[part * stride]);
  for (int64_t part = 0; part < op.parts; ++part) {
    whole.sum += stats[part * stride + 1] * expf(stats[part * stride] - whole.max);
    logit_of_label += stats[part * stride + 2];
  }
  if (threadIdx.x == 0) op.losses[row] = logf(whole.sum) + (whole.max - logit_of_label);
  if (!op.gradient) return;
  const float scale = static_cast<float>(op.state->loss_scale / op.inputs->valid_tokens) *
                      (op.weights == nullptr ? 1.0f : op.weights[row]);
  const int64_t here = label - op.first;  // behind the last column it is another part's
  write_gradient<T, N>(logits, op.vocab, op.row, whole, here < op.vocab ? here : -1, scale, op.softcap);
}

__global__ void loss_sum_kernel(LossSum op, int64_t parts) {
  __shared__ double of_parts[kSumThreads];
  const int64_t part = threadIdx.x;
  if (part < parts) {
    double sum = 0;
    const int64_t end = op.rows * (part + 1) / parts;
#pragma unroll 16
    for (int64_t row = op.rows * part / parts; row < end; ++row) sum += op.losses[row];  // part_begin()
    of_parts[part] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = 0;
    for (int64_t p = 0; p < parts; ++p) sum += of_parts[p];
    *op.sum = sum;
  }
}

constexpr int kPairThreads = 256;

__device__ double log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }
__device__ double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

// One block: pairs are few. Threads sum the rows of a sequence, each its own, and the sums are folded in the
// order of the threads, so that a sequence has the same bits wherever it stands.
__global__ void preference_loss_kernel(PreferenceLoss op) {
  __shared__ double sums[kPairThreads];
  __shared__ float slope;
  __shared__ int real;
  double total = 0;
  for (int64_t pair = 0; pair < op.pairs; ++pair) {
    if (threadIdx.x == 0) real = 0;
    for (int half = 0; half < 2; ++half) {
      const int64_t first = (2 * pair + half) * op.length;
      double sum = 0;
      __syncthreads();
      for (int64_t i = threadIdx.x; i < op.length; i += kPairThreads) {
        sum -= op.losses[first + i];
        if (op.labels[first + i] != kIgnoredLabel) real = 1;
      }
      sums[threadIdx.x] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        double whole = 0;
        for (int t = 0; t < kPairThreads; ++t) whole += sums[t];
        op.sequences[2 * pair + half] = whole;
      }
    }
    if (threadIdx.x == 0) {
      const double* now = op.sequences + 2 * pair;
      const double* before = op.references + 2 * pair;
      const double beta = op.beta, smoothing = op.smoothing;
      const double h = beta * ((now[0] - before[0]) - (now[1] - before[1]));
      slope =
          real ? static_cast<float>(beta * ((1 - smoothing) * sigmoid(-h) - smoothing * sigmoid(h))) : 0.0f;
      if (real) total += -(1 - smoothing) * log_sigmoid(h) - smoothing * log_sigmoid(-h);
    }
    __syncthreads();
    float* weights = op.weights + 2 * pair * op.length;
    for (int64_t i = threadIdx.x; i < op.length; i += kPairThreads) {
      weights[i] = slope;
      weights[op.length + i] = -slope;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *op.sum = total;
}

}  // namespace

void vocab_stats(const VocabStats& given, const Launch& launch) {
  const Launcher run("vocab_stats", launch);
  VocabStats op = given;
  op.row = row_of_logits(given);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    by_width<kWide<T>>(fits_vectors<T>(op.row, op.logits), [&](auto width) {
      run({.blocks = op.rows, .threads = kThreads}, vocab_stats_kernel<T, width.value>, op);
    });
  });
}

void vocab_cross_entropy(const VocabCrossEntropy& given, const Launch& launch) {
  const Launcher run("vocab_cross_entropy", launch);
  VocabCrossEntropy op = given;
  op.row = row_of_logits(given);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    by_width<kWide<T>>(fits_vectors<T>(op.row, op.logits), [&](auto width) {
      run({.blocks = op.rows, .threads = kThreads}, vocab_cross_entropy_kernel<T, width.value>, op);
    });
  });
}

void preference_loss(const PreferenceLoss& op, const Launch& launch) {
  const Launcher run("preference_loss", launch);
  run({.blocks = 1, .threads = kPairThreads}, preference_loss_kernel, op);
}

void loss_sum(const LossSum& op, const Launch& launch) {
  const Launcher run("loss_sum", launch);
  run({.blocks = 1, .threads = kSumThreads}, loss_sum_kernel, op, row_parts(op.rows));
}

}  // namespace lockstep::kernels::cuda
