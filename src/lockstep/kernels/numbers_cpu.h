// The CPU kernels' view of the number types: loads widen to fp32, stores round once to nearest even.
//
// Conversions are branch-free integer arithmetic, so that loops over them vectorise. Like
// vector_math.h, everything is in the level's namespace.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/vector_math.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

enum class Bf16 : uint16_t {};
enum class F16 : uint16_t {};

LS_INLINE uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
LS_INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

LS_INLINE float widen(float value) { return value; }

LS_INLINE float widen(Bf16 value) { return float_of(static_cast<uint32_t>(value) << 16); }

// Normal numbers by a shift and a power of two, subnormal ones by subtracting the implied bit.
LS_INLINE float widen(F16 value) {
  const uint32_t shifted = static_cast<uint32_t>(value) << 16;
  const uint32_t twice = shifted + shifted;
  const float normal = float_of((twice >> 4) + (0xE0u << 23)) * 0x1.0p-112f;
  const float subnormal = float_of((twice >> 17) | (126u << 23)) - 0.5f;
  return float_of((shifted & 0x80000000u) | bits_of(twice < (1u << 27) ? subnormal : normal));
}

template <class T>
LS_INLINE T narrow(float value);

template <>
LS_INLINE float narrow<float>(float value) {
  return value;
}

template <>
LS_INLINE Bf16 narrow<Bf16>(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<Bf16>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

// The addition of a suitable power of two makes the hardware round at fp16's last bit; too large
// numbers overflow to infinity on the way.
template <>
LS_INLINE F16 narrow<F16>(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t twice = bits + bits;
  const float scaled = (float_of(bits & 0x7FFFFFFFu) * 0x1.0p+112f) * 0x1.0p-110f;
  const uint32_t exponent = twice & 0xFF000000u;
  const uint32_t bias = exponent < 0x71000000u ? 0x71000000u : exponent;
  const uint32_t rounded = bits_of(float_of((bias >> 1) + 0x07800000u) + scaled);
  const uint32_t magnitude = ((rounded >> 13) & 0x7C00u) + (rounded & 0x0FFFu);
  return static_cast<F16>(((bits >> 16) & 0x8000u) | (twice > 0xFF000000u ? 0x7E00u : magnitude));
}

// Calls body(T{}) with the C++ type of a floating-point edge type.
template <class Body>
LS_INLINE void with_type(device::DType type, Body&& body) {
  if (type == device::DType::bf16) {
    body(Bf16{});
  } else if (type == device::DType::f16) {
    body(F16{});
  } else {
    body(float{});
  }
}

template <class T>
LS_INLINE void widen_run(const T* from, int64_t count, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = widen(from[i]);
}

template <class T>
LS_INLINE void narrow_run(const float* from, int64_t count, T* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = narrow<T>(from[i]);
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
