// Exponentials for loops: branch-free, so that they vectorise, and accurate to about two units in the
// last place. Each works on one float or on Lanes, sixteen floats that the compiler maps to the widest
// registers there are.
//
// CPU kernels are compiled once for each instruction set, so everything here lives in the level's own
// namespace: the linker must never replace one level's function by another's.
#pragma once

#include <cstdint>

#if !defined(LOCKSTEP_CPU_LEVEL)
#error "vector_math.h is for *_cpu.cc files only: LOCKSTEP_CPU_LEVEL names the level they are compiled for"
#endif

#pragma GCC diagnostic ignored "-Wpsabi"  // Lanes never cross a call: every function here is inlined

#define LS_INLINE inline __attribute__((always_inline))

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

constexpr int64_t kLanes = 16;
typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t LanesInt __attribute__((vector_size(64)));
typedef float UnalignedLanes __attribute__((vector_size(64), aligned(4), may_alias));

template <class F>
struct BitsOf {
  using Type = uint32_t;
};
template <>
struct BitsOf<Lanes> {
  typedef uint32_t Type __attribute__((vector_size(64)));
};

// e^x; 0 below -87.3 (where results would be subnormal) and 2.4e38 above 88.3 (instead of infinity).
template <class F>
LS_INLINE F exponential(const F& x) {
  using Bits = typename BitsOf<F>::Type;
  constexpr float kLowest = -87.33654f, kHighest = 88.3762f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const F clamped = x > kHighest ? F{} + kHighest : x;
  const F shifted = clamped * 1.44269504f + kRound;
  const F n = shifted - kRound;
  const F r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two pieces
  F p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;
  const Bits power = (__builtin_bit_cast(Bits, shifted) << 23) + 0x3F800000u;  // 2^n
  return x < kLowest ? F{} : p * __builtin_bit_cast(F, power);
}

template <class F>
LS_INLINE F sigmoid(const F& x) {
  return 1.0f / (1.0f + exponential(-x));
}

// GELU in its tanh form: x * (1 + tanh(u)) / 2 is x * sigmoid(2u), which needs no tanh.
struct GeluParts {
  float gate;   // sigmoid(2u)
  float slope;  // derivative of 2u
};

LS_INLINE GeluParts gelu_parts(float x) {
  constexpr float kTwoRootTwoOverPi = 1.59576912f, kCubic = 0.044715f;
  const float square = x * x;
  return {sigmoid(kTwoRootTwoOverPi * x * (1.0f + kCubic * square)),
          kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * square)};
}

// The normal distribution at x: what GELU is made of by its definition. The share above |x| is
// exp(-x^2 / 2) p(t), where p is a polynomial that was fitted for this range of t, to 2e-8 of itself.
struct NormalParts {
  float below;    // the share below x
  float density;  // its derivative
};

LS_INLINE NormalParts normal_parts(float x) {
  const float size = x < 0.0f ? -x : x;
  const float fall = exponential(-0.5f * (x * x));
  const float t = 1.0f / (1.0f + 0.4f * size);
  float p = t * 0.0316071399f - 0.17374678f;
  p = p * t + 0.375662625f;
  p = p * t - 0.365961403f;
  p = p * t + 0.113449804f;
  p = p * t - 0.0239664912f;
  p = p * t + 0.0904684141f;
  p = p * t + 0.13329868f;
  p = p * t + 0.159611434f;
  p = p * t + 0.15957658f;
  const float above = fall * (p * t);
  return {x < 0.0f ? above : 1.0f - above, 0.398942280f * fall};
}

LS_INLINE Lanes load_lanes(const float* from) { return *reinterpret_cast<const UnalignedLanes*>(from); }
LS_INLINE void store_lanes(float* to, const Lanes& value) { *reinterpret_cast<UnalignedLanes*>(to) = value; }
LS_INLINE Lanes fill_lanes(float value) { return Lanes{} + value; }

// All ones in lane l where first + l < end.
LS_INLINE LanesInt lanes_before(int64_t first, int64_t end) {
  constexpr LanesInt kIndex = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return kIndex < static_cast<int32_t>(end - first > kLanes ? kLanes : end - first);
}

// Folded by halves: the same order at every level.
LS_INLINE float sum_of(const Lanes& value) {
  float lanes[kLanes];
  store_lanes(lanes, value);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

LS_INLINE float maximum_of(const Lanes& value) {
  float lanes[kLanes];
  store_lanes(lanes, value);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] = lanes[l] < lanes[l + half] ? lanes[l + half] : lanes[l];
  }
  return lanes[0];
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
