// The nonlinearities as functions of one float, branch-free, so that loops over them vectorise.
//
// Each gives f(x), d * f(x) and d * f'(x). A gate's gradient is written with d inside, because the order of
// its products is part of a run's bits.
#pragma once

#include "lockstep/kernels/elementwise/activation.h"
#include "lockstep/kernels/vector_math.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

template <ActivationKind>
struct Curve;

template <>
struct Curve<ActivationKind::gelu_tanh> {
  static LS_INLINE float value(float x) { return x * gelu_parts(x).gate; }
  static LS_INLINE float times(float d, float x) { return d * value(x); }
  static LS_INLINE float pull(float d, float x) {
    const GeluParts parts = gelu_parts(x);
    const float slope = parts.gate + x * parts.gate * (1.0f - parts.gate) * parts.slope;
    return d * slope;
  }
};

template <>
struct Curve<ActivationKind::gelu_erf> {
  static LS_INLINE float value(float x) { return x * normal_parts(x).below; }
  static LS_INLINE float times(float d, float x) { return d * value(x); }
  static LS_INLINE float pull(float d, float x) {
    const NormalParts parts = normal_parts(x);
    return d * (parts.below + x * parts.density);
  }
};

template <>
struct Curve<ActivationKind::gelu_sigmoid> {
  static constexpr float kSteepness = 1.702f;
  static LS_INLINE float value(float x) { return x * sigmoid(kSteepness * x); }
  static LS_INLINE float times(float d, float x) { return d * value(x); }
  static LS_INLINE float pull(float d, float x) {
    const float s = sigmoid(kSteepness * x);
    return d * (s + kSteepness * x * s * (1.0f - s));
  }
};

// What is not a number stays so.
template <>
struct Curve<ActivationKind::relu> {
  static LS_INLINE float value(float x) { return x < 0.0f ? 0.0f : x; }
  static LS_INLINE float times(float d, float x) { return d * value(x); }
  static LS_INLINE float pull(float d, float x) { return x <= 0.0f ? 0.0f : d; }
};

template <>
struct Curve<ActivationKind::relu_squared> {
  static LS_INLINE float value(float x) { return x < 0.0f ? 0.0f : x * x; }
  static LS_INLINE float times(float d, float x) { return d * value(x); }
  static LS_INLINE float pull(float d, float x) { return x <= 0.0f ? 0.0f : d * (2.0f * x); }
};

template <>
struct Curve<ActivationKind::silu> {
  static LS_INLINE float value(float x) { return x * sigmoid(x); }
  static LS_INLINE float times(float d, float x) { return d * x * sigmoid(x); }
  static LS_INLINE float pull(float d, float x) {
    const float s = sigmoid(x);
    return d * s * (1.0f + x * (1.0f - s));
  }
};

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
