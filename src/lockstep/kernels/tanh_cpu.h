// tanh for loops, and the soft cap that is made of it: branch-free, on one float or on Lanes, accurate to
// about two units in the last place.
#pragma once

#include "lockstep/kernels/vector_math.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

// Near zero a polynomial, since 1 - 2 / (e^2x + 1) would cancel there.
template <class F>
LS_INLINE F hyperbolic_tangent(const F& x) {
  constexpr float kNear = 0.625f;
  const F square = x * x;
  F p = square * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const F near = (p * square) * x + x;
  const F far = 1.0f - 2.0f / (exponential(x + x) + 1.0f);
  return square < kNear * kNear ? near : far;
}

// In place: cap * tanh(score / cap).
LS_INLINE void cap_scores(float* scores, int64_t count, float cap) {
  const float inverse = 1.0f / cap;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) scores[i] = cap * hyperbolic_tangent(scores[i] * inverse);
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
