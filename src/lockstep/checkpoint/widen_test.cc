#include "lockstep/checkpoint/widen.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace lockstep::checkpoint {
namespace {

// By the definition of the format: sign, `bits` of fraction, exponent with its bias.
double value_of(uint16_t half, int fraction_bits, int bias) {
  const int exponent_bits = 15 - fraction_bits, most = (1 << exponent_bits) - 1;
  const int exponent = (half >> fraction_bits) & most, fraction = half & ((1 << fraction_bits) - 1);
  const double sign = half & 0x8000 ? -1 : 1;
  if (exponent == most) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

TEST(Widen, EveryHalfIsExact) {
  std::vector<unsigned char> memory(1 + 2 * 65536);  // off by one byte: files do not align
  for (uint32_t half = 0; half < 65536; ++half) std::memcpy(&memory[1 + 2 * half], &half, 2);
  std::vector<float> wide(65536);
  for (const auto& [type, fraction_bits, bias] :
       {std::tuple(device::DType::f16, 10, 15), std::tuple(device::DType::bf16, 7, 127)}) {
    widen(&memory[1], type, 65536, wide.data());
    for (uint32_t half = 0; half < 65536; ++half) {
      const double expected = value_of(static_cast<uint16_t>(half), fraction_bits, bias);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[half])) << half;
      } else {
        ASSERT_EQ(static_cast<double>(wide[half]), expected) << half;
      }
      ASSERT_EQ(std::signbit(wide[half]), half >= 0x8000) << half;
    }
  }
}

TEST(Widen, Fp32KeepsEveryBit) {
  const uint32_t bits[] = {0x7fa00001u, 0x80000000u, 1u, 0xff800000u};  // a signalling NaN among them
  float wide[4];
  widen(bits, device::DType::f32, 4, wide);
  EXPECT_EQ(std::memcmp(bits, wide, sizeof bits), 0);
}

}  // namespace
}  // namespace lockstep::checkpoint
