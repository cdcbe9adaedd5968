#include "lockstep/kernels/optimizer/muon.h"

#include <math.h>

#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// Calls `run` with runs of elements, on all threads; an element's result depends on that element alone.
template <class Run>
void for_runs(int64_t count, Run run) {
  constexpr int64_t kRun = 4096;
  for_items((count + kRun - 1) / kRun, kRun, [&](int64_t item) {
    const int64_t begin = item * kRun;
    run(begin, smaller(kRun, count - begin));
  });
}

LS_INLINE void follow(const float* gradient, int64_t count, float clip, float beta, float* m,
                      float* direction) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * clip;
    const float mean = beta * m[i] + (1.0f - beta) * g;
    m[i] = mean;
    direction[i] = g + beta * (mean - g);
  }
}

}  // namespace

void muon_momentum(const MuonMomentum& op, const Launch&) {
  for_runs(op.count, [&](int64_t at, int64_t count) {
    if (op.state->apply == 0) {
      for (int64_t i = at; i < at + count; ++i) op.direction[i] = 0;
      return;
    }
    if (op.m_type == device::DType::f32) {
      follow(op.gradient + at, count, op.state->clip, op.beta, static_cast<float*>(op.m) + at,
             op.direction + at);
      return;
    }
    float wide[4096];
    Bf16* const kept = static_cast<Bf16*>(op.m) + at;
    widen_run(kept, count, wide);
    follow(op.gradient + at, count, op.state->clip, op.beta, wide, op.direction + at);
    narrow_run(wide, count, kept);
  });
}

void normalize(const Normalize& op, const Launch&) {
  const int64_t runs = (op.count + kNormalizeRun - 1) / kNormalizeRun;
  for_items(runs, kNormalizeRun, [&](int64_t run) {
    const float* x = op.x + run * kNormalizeRun;
    const int64_t count = smaller(kNormalizeRun, op.count - run * kNormalizeRun);
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    op.sums[run] = total;
  });
  double total = 0;
  for (int64_t run = 0; run < runs; ++run) total += op.sums[run];
  const double norm = sqrt(total), least = static_cast<double>(op.least);
  const auto by = static_cast<float>(1 / (norm > least ? norm : least));
  for_runs(op.count, [&](int64_t at, int64_t count) {
#pragma omp simd
    for (int64_t i = at; i < at + count; ++i) op.x[i] *= by;
  });
}

void blend(const Blend& op, const Launch&) {
  for_runs(op.count, [&](int64_t at, int64_t count) {
    if (op.type == device::DType::f32) {
      const float *x = static_cast<const float*>(op.x), *y = static_cast<const float*>(op.y);
      auto* out = static_cast<float*>(op.out);
      for (int64_t i = at; i < at + count; ++i) out[i] = op.by_x * x[i] + op.by_y * y[i];
      return;
    }
    float x[4096], y[4096];
    widen_run(static_cast<const Bf16*>(op.x) + at, count, x);
    widen_run(static_cast<const Bf16*>(op.y) + at, count, y);
    for (int64_t i = 0; i < count; ++i) x[i] = op.by_x * x[i] + op.by_y * y[i];
    narrow_run(x, count, static_cast<Bf16*>(op.out) + at);
  });
}

void muon_apply(const MuonApply& op, const Launch&) {
  if (op.state->apply == 0) return;
  const float rate = op.inputs->learning_rate * op.rate;
  for_runs(op.count, [&](int64_t at, int64_t count) {
#pragma omp simd
    for (int64_t i = at; i < at + count; ++i)
      op.master[i] -= rate * (op.scale * op.direction[i] + op.weight_decay * op.master[i]);
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
