// Parameter updates over chunks of the flat buffers: a chunk is cut into parts of one block each.
#include "lockstep/kernels/optimizer.h"

#include <cmath>

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPart = 4096;  // elements of one block
constexpr int64_t kPartsOfChunk = kChunk / kPart;

// The scalars of a step, read once by each thread.
struct Rates {
  float learning_rate, clip, beta1, beta2, epsilon, decay;
  float correction1, correction2;  // 1 / (1 - beta^applied)
};

__device__ Rates rates_of(const Update& op, const Chunk& chunk) {
  return {.learning_rate = op.inputs->learning_rate,
          .clip = op.state->clip,
          .beta1 = op.beta1,
          .beta2 = op.beta2,
          .epsilon = op.epsilon,
          .decay = chunk.weight_decay,
          .correction1 = static_cast<float>(1.0 / (1.0 - op.state->beta1_power)),
          .correction2 = static_cast<float>(1.0 / (1.0 - op.state->beta2_power))};
}

// One element: reads and writes m (and v), returns the new master.
template <UpdateRule kRule>
__device__ float updated(const Rates& r, float p, float gradient, float& m, float& v) {
  const float g = gradient * r.clip;
  if constexpr (kRule == UpdateRule::adamw) {
    m = r.beta1 * m + (1.0f - r.beta1) * g;
    v = r.beta2 * v + (1.0f - r.beta2) * g * g;
    const float step = m * r.correction1 / (sqrtf(v * r.correction2) + r.epsilon);
    return p - r.learning_rate * (step + r.decay * p);
  } else if constexpr (kRule == UpdateRule::sgd) {
    m = r.beta1 * m + g;
    return p - r.learning_rate * (m + r.decay * p);
  } else {
    const float blend = r.beta1 * m + (1.0f - r.beta1) * g;
    const float sign = blend > 0 ? 1.0f : blend < 0 ? -1.0f : 0.0f;
    m = r.beta2 * m + (1.0f - r.beta2) * g;
    return p - r.learning_rate * (sign + r.decay * p);
  }
}

template <UpdateRule kRule, class T, int N>
__device__ void update_at(const Update& op, const Rates& rates, int64_t i) {
  Vec<float, N> p = load<N>(op.master + i), m = load<N>(op.m + i), v{};
  const Vec<float, N> g = load<N>(op.gradient + i);
  if constexpr (kRule == UpdateRule::adamw) v = load<N>(op.v + i);
#pragma unroll
  for (int j = 0; j < N; ++j) p[j] = updated<kRule>(rates, p[j], g[j], m[j], v[j]);
  store<N>(op.master + i, p);
  store<N>(op.m + i, m);
  if constexpr (kRule == UpdateRule::adamw) store<N>(op.v + i, v);
  if (op.compute) {
    Vec<T, N> rounded;
#pragma unroll
    for (int j = 0; j < N; ++j) rounded[j] = from_float<T>(p[j]);
    store<N>(static_cast<T*>(op.compute) + i, rounded);
  }
}

template <UpdateRule kRule, class T>
__global__ void update_kernel(Update op, bool aligned) {
  if (op.state->apply == 0) return;
  const Chunk chunk = op.chunks[blockIdx.x / kPartsOfChunk];
  const int64_t first = blockIdx.x % kPartsOfChunk * kPart;
  const int64_t last = first + kPart < chunk.count ? first + kPart : chunk.count;
  if (first >= last) return;
  const Rates rates = rates_of(op, chunk);
  const int64_t begin = chunk.begin + first, end = chunk.begin + last;
  if (aligned && chunk.begin % 4 == 0 && chunk.count % 4 == 0) {
    for (int64_t i = begin + threadIdx.x * 4; i < end; i += kThreads * 4)
      update_at<kRule, T, 4>(op, rates, i);
  } else {
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) update_at<kRule, T, 1>(op, rates, i);
  }
}

template <class Function>
void by_rule(UpdateRule rule, Function function) {
  switch (rule) {
    case UpdateRule::adamw:
      return function(std::integral_constant<UpdateRule, UpdateRule::adamw>{});
    case UpdateRule::sgd:
      return function(std::integral_constant<UpdateRule, UpdateRule::sgd>{});
    case UpdateRule::lion:
      return function(std::integral_constant<UpdateRule, UpdateRule::lion>{});
  }
  LS_ASSERT(false, "no such update rule");
}

}  // namespace

void update(const Update& op, const Launch& launch) {
  const Launcher run("update", launch);
  const bool aligned = is_aligned(16, op.master) && is_aligned(16, op.gradient) && is_aligned(16, op.m) &&
                       is_aligned(16, op.v) && is_aligned(16, op.compute);
  by_rule(op.rule, [&](auto rule) {
    by_type(op.compute_type, [&](auto element) {
      run({.blocks = op.chunk_count * kPartsOfChunk, .threads = kThreads},
          update_kernel<rule.value, decltype(element)>, op, aligned);
    });
  });
}

}  // namespace lockstep::kernels::cuda
