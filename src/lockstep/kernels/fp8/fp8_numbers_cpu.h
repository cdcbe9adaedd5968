// fp8 numbers as the CPU sees them: bytes that widen to fp32 exactly and are rounded from it once, to nearest
// even, never beyond the format's largest number.
#pragma once

#include "lockstep/kernels/fp8/fp8.h"
#include "lockstep/kernels/numbers_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

template <Fp8 kFormat>
struct Fp8Bits {
  static constexpr int kFraction = kFormat == Fp8::e4m3 ? 3 : 2;  // bits behind the implied one
  static constexpr int kBias = kFormat == Fp8::e4m3 ? 7 : 15;
  static constexpr float kLargest = kFormat == Fp8::e4m3 ? 448.0f : 57344.0f;
  static constexpr float kNormal = kFormat == Fp8::e4m3 ? 0x1.0p-6f : 0x1.0p-14f;  // the smallest
  static constexpr uint32_t kNan = 0x7F, kFirstNan = kFormat == Fp8::e4m3 ? 0x7F : 0x7C;
};

template <Fp8 kFormat>
LS_INLINE float widen_fp8(uint8_t byte) {
  using Bits = Fp8Bits<kFormat>;
  const uint32_t magnitude = byte & 0x7Fu, sign = static_cast<uint32_t>(byte & 0x80u) << 24;
  const float rebias = float_of(static_cast<uint32_t>(127 + 127 - Bits::kBias) << 23);
  const float value = float_of(magnitude << (23 - Bits::kFraction)) * rebias;
  return float_of(sign | (magnitude >= Bits::kFirstNan ? 0x7FC00000u : bits_of(value)));
}

template <Fp8 kFormat>
LS_INLINE uint8_t narrow_fp8(float value) {
  using Bits = Fp8Bits<kFormat>;
  constexpr int kShift = 23 - Bits::kFraction;
  const uint32_t bits = bits_of(value), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7FFFFFFFu;
  const float given = float_of(magnitude), held = given < Bits::kLargest ? given : Bits::kLargest;
  const uint32_t kept = bits_of(held);
  const uint32_t rounded = (kept + (1u << (kShift - 1)) - 1 + (kept >> kShift & 1u)) >> kShift;
  const uint32_t normal = rounded - (static_cast<uint32_t>(127 - Bits::kBias) << Bits::kFraction);
  // Below the normal numbers the unit is fixed: adding 2^23 units makes the hardware round to whole ones.
  constexpr float kUnits = Bits::kNormal * static_cast<float>(1 << kShift);
  const uint32_t subnormal = bits_of(held + kUnits) - bits_of(kUnits);
  const uint32_t number = held < Bits::kNormal ? subnormal : normal;
  return static_cast<uint8_t>(magnitude > 0x7F800000u ? Bits::kNan : sign | number);
}

// Calls body(std::integral_constant-like tag) with the format as a constant.
template <Fp8 kFormat>
struct Fp8Tag {
  static constexpr Fp8 value = kFormat;
};
template <class Body>
LS_INLINE void with_format(Fp8 format, Body&& body) {
  if (format == Fp8::e4m3) {
    body(Fp8Tag<Fp8::e4m3>{});
  } else {
    body(Fp8Tag<Fp8::e5m2>{});
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
