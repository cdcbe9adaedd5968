#include "lockstep/kernels/optimizer/optimizer.h"

#include <math.h>

#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/optimizer/random_rounding.h"
#include "lockstep/kernels/philox_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

LS_INLINE double sum_of_squares(const float* values, int64_t count) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i)
    total += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return total;
}

// The scalars of an update, once for all elements.
struct Rates {
  float clip, rate, beta1, beta2, epsilon;
  float first_scale;   // rate / (1 - beta1^t)
  float second_scale;  // 1 / sqrt(1 - beta2^t)
};

// `factor`: of the chunk's parameter.
Rates rates_of(const Update& op, float factor) {
  const StepState& state = *op.state;
  Rates rates{};
  rates.clip = state.clip;
  rates.rate = op.inputs->learning_rate * factor;
  rates.beta1 = op.beta1;
  rates.beta2 = op.beta2;
  rates.epsilon = op.epsilon;
  rates.first_scale = static_cast<float>(static_cast<double>(rates.rate) / (1 - state.beta1_power));
  rates.second_scale = static_cast<float>(1 / sqrt(1 - state.beta2_power));
  return rates;
}

LS_INLINE void adamw(float* p, const float* gradient, float* m, float* v, int64_t count, float decay,
                     const Rates& by) {
  const Rates rates = by;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * rates.clip;
    const float first = rates.beta1 * m[i] + (1.0f - rates.beta1) * g;
    const float second = rates.beta2 * v[i] + (1.0f - rates.beta2) * (g * g);
    m[i] = first;
    v[i] = second;
    p[i] = p[i] - rates.rate * decay * p[i] -
           rates.first_scale * first / (sqrtf(second) * rates.second_scale + rates.epsilon);
  }
}

LS_INLINE void sgd(float* p, const float* gradient, float* m, int64_t count, float decay, const Rates& by) {
  const Rates rates = by;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float momentum = rates.beta1 * m[i] + gradient[i] * rates.clip;
    m[i] = momentum;
    p[i] = p[i] - rates.rate * (momentum + decay * p[i]);
  }
}

LS_INLINE void lion(float* p, const float* gradient, float* m, int64_t count, float decay, const Rates& by) {
  const Rates rates = by;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * rates.clip;
    const float towards = rates.beta1 * m[i] + (1.0f - rates.beta1) * g;
    const float sign = towards > 0.0f ? 1.0f : towards < 0.0f ? -1.0f : 0.0f;
    p[i] = p[i] - rates.rate * (sign + decay * p[i]);
    m[i] = rates.beta2 * m[i] + (1.0f - rates.beta2) * g;
  }
}

// Elements [at, at + count) with their moments in fp32.
void update_run(const Update& op, int64_t at, int64_t count, float* m, float* v, float decay,
                const Rates& rates) {
  float* p = op.master + at;
  switch (op.rule) {
    case UpdateRule::adamw:
      return adamw(p, op.gradient + at, m, v, count, decay, rates);
    case UpdateRule::sgd:
      return sgd(p, op.gradient + at, m, count, decay, rates);
    case UpdateRule::lion:
      return lion(p, op.gradient + at, m, count, decay, rates);
    case UpdateRule::own:
      break;  // update_own_chunk()
  }
}

// Second moments, in runs whose draws are made at once.
void narrow_randomly(const float* from, int64_t count, const Draws& draws, Bf16* to) {
  const uint32_t* words[] = {draws.x, draws.y, draws.z, draws.w};
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<Bf16>(round_randomly(bits_of(from[i]), words[i % 4][i / 4]));
}

void update_chunk_in_bf16(const Update& op, const Chunk& chunk, int64_t number, const Rates& rates) {
  constexpr int64_t kRun = 4 * kDraws;
  float m[kRun], v[kRun];
  for (int64_t first = 0; first < chunk.count; first += kRun) {
    const int64_t at = chunk.begin + first, left = chunk.count - first, count = left < kRun ? left : kRun;
    Bf16* kept_m = static_cast<Bf16*>(op.m) + at;
    Bf16* kept_v = op.v == nullptr ? nullptr : static_cast<Bf16*>(op.v) + at;
    widen_run(kept_m, count, m);
    if (kept_v != nullptr) widen_run(kept_v, count, v);
    update_run(op, at, count, m, v, chunk.weight_decay, rates);
    narrow_run(m, count, kept_m);
    if (kept_v == nullptr) continue;
    Draws draws;
    draw(rounding_key(*op.inputs), static_cast<uint64_t>(first / 4),
         static_cast<uint64_t>(op.first_chunk + chunk.number(number)), draws);
    narrow_randomly(v, count, draws, kept_v);
  }
}

// A program's rule, with what it keeps in fp32 for so long.
void update_own_chunk(const Update& op, const Chunk& chunk, int64_t number, const Rates& rates) {
  constexpr int64_t kRun = 4 * kDraws;
  float wide[kMostState][kRun];
  bool rounds = false;
  for (int k = 0; k < op.kept_count; ++k) rounds |= op.kept_types[k] == device::DType::bf16;
  for (int64_t first = 0; first < chunk.count; first += rounds ? kRun : chunk.count) {
    const int64_t at = chunk.begin + first, left = chunk.count - first;
    const int64_t count = rounds && left > kRun ? kRun : left;
    OwnUpdate own{.master = op.master + at,
                  .gradient = op.gradient + at,
                  .count = count,
                  .rate = rates.rate,
                  .clip = rates.clip,
                  .weight_decay = chunk.weight_decay,
                  .beta1 = rates.beta1,
                  .beta2 = rates.beta2,
                  .epsilon = rates.epsilon,
                  .beta1_power = pow(static_cast<double>(op.beta1), static_cast<double>(op.state->applied)),
                  .beta2_power = pow(static_cast<double>(op.beta2), static_cast<double>(op.state->applied))};
    for (int k = 0; k < op.kept_count; ++k) {
      const bool half = op.kept_types[k] == device::DType::bf16;
      if (half) widen_run(static_cast<Bf16*>(op.kept[k]) + at, count, wide[k]);
      own.state[k] = half ? wide[k] : static_cast<float*>(op.kept[k]) + at;
    }
    own.m = own.state[0], own.v = own.state[1];
    op.own(own);
    for (int k = 0; k < op.kept_count; ++k) {
      if (op.kept_types[k] != device::DType::bf16) continue;
      Bf16* const to = static_cast<Bf16*>(op.kept[k]) + at;
      if (k != 1) {
        narrow_run(wide[k], count, to);
        continue;
      }
      Draws draws;
      draw(rounding_key(*op.inputs), static_cast<uint64_t>(first / 4),
           static_cast<uint64_t>(op.first_chunk + chunk.number(number)), draws);
      narrow_randomly(wide[k], count, draws, to);
    }
  }
}

void update_chunk(const Update& op, const Chunk& chunk, int64_t number, const Rates& rates) {
  const int64_t at = chunk.begin, count = chunk.count;
  float* p = op.master + at;
  if (op.rule == UpdateRule::own) {
    update_own_chunk(op, chunk, number, rates);
  } else if (op.moment_type == device::DType::bf16) {
    update_chunk_in_bf16(op, chunk, number, rates);
  } else {
    float* v = op.v == nullptr ? nullptr : static_cast<float*>(op.v) + at;
    update_run(op, at, count, static_cast<float*>(op.m) + at, v, chunk.weight_decay, rates);
  }
  if (op.compute == nullptr) return;
  with_type(op.compute_type, [&](auto tag) {
    using T = decltype(tag);
    narrow_run(p, count, static_cast<T*>(op.compute) + at);
  });
}

// The loss scale of fp16: halved when a gradient overflowed, doubled after enough good steps in a row.
void adapt_scale(const NormPolicy& policy, StepState& state) {
  if (state.apply == 0) {
    state.loss_scale *= policy.backoff;
    state.good_steps = 0;
  } else if (state.good_steps >= policy.growth_interval) {
    const float grown = state.loss_scale * policy.growth;
    state.loss_scale = grown < policy.max_scale ? grown : policy.max_scale;
    state.good_steps = 0;
  }
}

}  // namespace

void square_sums(const SquareSums& op, const Launch&) {
  for_items(op.chunk_count, kSerialBelow, [&](int64_t i) {
    op.sums[op.chunks[i].number(i)] = sum_of_squares(op.gradient + op.chunks[i].begin, op.chunks[i].count);
  });
}

void norm_finish(const NormFinish& op, const Launch&) {
  StepState& state = *op.state;
  double loss = 0, total = 0;
  for (int64_t i = 0; i < op.slices; ++i) loss += op.slice_losses[i];
  for (int64_t i = 0; i < op.chunk_count; ++i) total += op.sums[i];

  const bool halted = ends_run(op.policy, state);
  state.step = op.inputs->step;
  state.stop = op.inputs->stop;
  state.loss = loss / op.inputs->valid_tokens;
  state.grad_norm = sqrt(total) / static_cast<double>(state.loss_scale);
  state.apply = isfinite(total) && !halted ? 1 : 0;
  double clip = 1;
  if (state.apply != 0 && op.policy.max_norm > 0) {
    const double ratio = static_cast<double>(op.policy.max_norm) / (state.grad_norm + 1e-6);
    clip = ratio < 1 ? ratio : 1;
  }
  state.clip = static_cast<float>(clip / static_cast<double>(state.loss_scale));
  if (state.apply != 0) {
    state.beta1_power *= static_cast<double>(op.policy.beta1);
    state.beta2_power *= static_cast<double>(op.policy.beta2);
    ++state.applied;
    ++state.good_steps;
  } else {
    ++state.skipped;
  }
  if (op.policy.dynamic_scale) adapt_scale(op.policy, state);  // after clip: it is of this step's scale
}

void update(const Update& op, const Launch&) {
  if (op.state->apply == 0) return;
  for_items(op.chunk_count, kSerialBelow,
            [&](int64_t i) { update_chunk(op, op.chunks[i], i, rates_of(op, op.chunks[i].rate)); });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
