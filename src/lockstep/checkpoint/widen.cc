#include "lockstep/checkpoint/widen.h"

#include <bit>
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

}  // namespace lockstep::checkpoint
