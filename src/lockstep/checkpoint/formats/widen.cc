#include "lockstep/checkpoint/formats/widen.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

uint16_t half_at(const std::byte* from, int64_t index) {
  uint16_t half;
  std::memcpy(&half, from + 2 * index, sizeof half);
  return half;
}

float from_bf16(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

float from_f16(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31, fraction = half & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);  // infinity, NaN
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  // Subnormal in fp16, normal in fp32.
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
}

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays one
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
  if (rest >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and more
  if (rest < 0x38800000u) {                                               // subnormal: multiples of 2^-24
    // Adding 0.5 leaves the multiple in the last bits, rounded by the processor.
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13));
}

}  // namespace

bool can_widen(device::DType type) {
  return type == device::DType::f32 || type == device::DType::bf16 || type == device::DType::f16;
}

void widen(const void* from, device::DType type, int64_t count, float* to) {
  LS_ASSERT(can_widen(type), device::name_of(type));
  const std::byte* bytes = static_cast<const std::byte*>(from);
  if (type == device::DType::f32) {
    if (count > 0) std::memcpy(to, bytes, static_cast<size_t>(count) * sizeof(float));
  } else if (type == device::DType::bf16) {
    for (int64_t i = 0; i < count; ++i) to[i] = from_bf16(half_at(bytes, i));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from_f16(half_at(bytes, i));
  }
}

int64_t narrow(const float* from, int64_t count, device::DType type, void* to) {
  LS_ASSERT(can_widen(type), device::name_of(type));
  if (type == device::DType::f32) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return 0;
  }
  const bool brain = type == device::DType::bf16;
  const uint16_t infinity = brain ? 0x7f80 : 0x7c00;
  auto* const bytes = static_cast<std::byte*>(to);
  int64_t overflowed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t half = brain ? to_bf16(from[i]) : to_f16(from[i]);
    if ((half & 0x7fff) == infinity && std::isfinite(from[i])) ++overflowed;
    std::memcpy(bytes + 2 * i, &half, sizeof half);
  }
  return overflowed;
}

}  // namespace lockstep::checkpoint
