#include "lockstep/checkpoint/formats/widen.h"

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

// Every half comes back, and what lies between two of them goes to the nearer, ties to the even one.
TEST(Narrow, RoundsToTheNearest) {
  for (const device::DType type : {device::DType::bf16, device::DType::f16}) {
    const uint16_t infinity = type == device::DType::bf16 ? 0x7f80 : 0x7c00;
    for (uint32_t k = 0; k < 2u * infinity; ++k) {
      const auto half = static_cast<uint16_t>(k / 2 | (k % 2) << 15), above = static_cast<uint16_t>(half + 1);
      float value = 0, next = 0;
      widen(&half, type, 1, &value);
      widen(&above, type, 1, &next);
      uint16_t back = 0;
      ASSERT_EQ(narrow(&value, 1, type, &back), 0);
      ASSERT_EQ(back, half);
      if (std::isinf(next)) continue;
      const float middle = static_cast<float>((static_cast<double>(value) + next) / 2);
      const float below = std::nextafter(middle, value), over = std::nextafter(middle, next);
      narrow(&middle, 1, type, &back);
      ASSERT_EQ(back, half % 2 == 0 ? half : above) << half;
      narrow(&below, 1, type, &back);
      ASSERT_EQ(back, half);
      narrow(&over, 1, type, &back);
      ASSERT_EQ(back, above);
    }
  }
  const float odd[] = {std::nanf(""), std::numeric_limits<float>::infinity(), 65519.9f, 65520.0f, -1e30f};
  uint16_t half[5];
  EXPECT_EQ(narrow(odd, 5, device::DType::f16, half), 2);
  EXPECT_GT(half[0] & 0x7fff, 0x7c00);
  EXPECT_EQ(half[1], 0x7c00);
  EXPECT_EQ(half[2], 0x7bff);
  EXPECT_EQ(half[3], 0x7c00);
  EXPECT_EQ(half[4], 0xfc00);
}

}  // namespace
}  // namespace lockstep::checkpoint
