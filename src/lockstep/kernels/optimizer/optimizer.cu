// Parameter updates over chunks of the flat buffers: a chunk is cut into parts of one block each.
#include "lockstep/kernels/optimizer/optimizer.h"

#include <cmath>

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/optimizer/random_rounding.h"
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
  return {.learning_rate = op.inputs->learning_rate * chunk.rate,
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

template <class M, int N>
__device__ Vec<float, N> load_moments(const void* from, int64_t i) {
  const Vec<M, N> stored = load<N>(static_cast<const M*>(from) + i);
  Vec<float, N> values;
#pragma unroll
  for (int j = 0; j < N; ++j) values[j] = to_float(stored[j]);
  return values;
}

template <class M, int N>
__device__ void store_nearest(void* to, int64_t i, const Vec<float, N>& values) {
  Vec<M, N> rounded;
#pragma unroll
  for (int j = 0; j < N; ++j) rounded[j] = from_float<M>(values[j]);
  store<N>(static_cast<M*>(to) + i, rounded);
}

// `element` counts from the chunk's first; N is 1, or 4 and `element` a multiple of 4.
template <int N>
__device__ void store_randomly(const Update& op, int64_t i, int64_t chunk, int64_t element,
                               const Vec<float, N>& values) {
  const base::Random4 draws = rounding_draws(rounding_key(*op.inputs), op.first_chunk + chunk, element / 4);
  const uint32_t words[4] = {draws.x, draws.y, draws.z, draws.w};
  Vec<Bf16, N> rounded;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const uint32_t draw = N == 4 ? words[j] : words[element % 4];
    rounded[j] = __ushort_as_bfloat16(round_randomly(__float_as_uint(values[j]), draw));
  }
  store<N>(static_cast<Bf16*>(op.v) + i, rounded);
}

// Elements [i, i + N) of the flat buffers, in chunk number `chunk` of the call's.
template <UpdateRule kRule, class T, class M, int N>
__device__ void update_at(const Update& op, const Rates& rates, int64_t i, int64_t chunk, int64_t element) {
  Vec<float, N> p = load<N>(op.master + i), m = load_moments<M, N>(op.m, i), v{};
  const Vec<float, N> g = load<N>(op.gradient + i);
  if constexpr (kRule == UpdateRule::adamw) v = load_moments<M, N>(op.v, i);
#pragma unroll
  for (int j = 0; j < N; ++j) p[j] = updated<kRule>(rates, p[j], g[j], m[j], v[j]);
  store<N>(op.master + i, p);
  store_nearest<M, N>(op.m, i, m);
  if constexpr (kRule == UpdateRule::adamw && sizeof(M) == 2) {
    store_randomly<N>(op, i, chunk, element, v);
  } else if constexpr (kRule == UpdateRule::adamw) {
    store_nearest<M, N>(op.v, i, v);
  }
  if (op.compute) {
    Vec<T, N> rounded;
#pragma unroll
    for (int j = 0; j < N; ++j) rounded[j] = from_float<T>(p[j]);
    store<N>(static_cast<T*>(op.compute) + i, rounded);
  }
}

template <UpdateRule kRule, class T, class M>
__global__ void update_kernel(Update op, bool aligned) {
  if (op.state->apply == 0) return;
  const int64_t number = blockIdx.x / kPartsOfChunk;
  const Chunk chunk = op.chunks[number];
  const int64_t first = blockIdx.x % kPartsOfChunk * kPart;
  const int64_t last = first + kPart < chunk.count ? first + kPart : chunk.count;
  if (first >= last) return;
  const Rates rates = rates_of(op, chunk);
  if (aligned && chunk.begin % 4 == 0 && chunk.count % 4 == 0) {
    for (int64_t e = first + threadIdx.x * 4; e < last; e += kThreads * 4)
      update_at<kRule, T, M, 4>(op, rates, chunk.begin + e, chunk.number(number), e);
  } else {
    for (int64_t e = first + threadIdx.x; e < last; e += kThreads)
      update_at<kRule, T, M, 1>(op, rates, chunk.begin + e, chunk.number(number), e);
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
    case UpdateRule::own:
      break;  // refused before anything is compiled
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
      using T = decltype(element);
      const Grid grid{.blocks = op.chunk_count * kPartsOfChunk, .threads = kThreads};
      if (op.moment_type == device::DType::bf16) {
        run(grid, update_kernel<rule.value, T, Bf16>, op, aligned);
      } else {
        run(grid, update_kernel<rule.value, T, float>, op, aligned);
      }
    });
  });
}

}  // namespace lockstep::kernels::cuda
