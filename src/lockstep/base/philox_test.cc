#include "lockstep/base/philox.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::base {
namespace {

std::vector<uint32_t> words_of(const Random4& random) { return {random.x, random.y, random.z, random.w}; }

// The known answers of Random123 for philox4x32-10.
TEST(Philox, IsTheOneOfThePaper) {
  const std::vector<uint32_t> zeros = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                              ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                              pi = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  EXPECT_EQ(words_of(philox(0, 0, 0)), zeros);
  EXPECT_EQ(words_of(philox(~0ull, ~0ull, ~0ull)), ones);
  EXPECT_EQ(words_of(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e)), pi);
}

// The first numbers of SplitMix64 from 0.
TEST(Philox, MixesAsSplitMix64) {
  const uint64_t expected[] = {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f};
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(mix64((i + 1) * 0x9E3779B97F4A7C15ull), expected[i]);
}

TEST(Philox, UnitFloatsAreBelowOne) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_EQ(unit_float(0x80000000), 0.5f);
  EXPECT_EQ(unit_float(0xffffffff), 1.0f - 1.0f / (1 << 24));
}

// Step, slice, site and place each have bits of their own.
TEST(Philox, DropoutDrawsByStepSliceSiteAndPlace) {
  const auto key = mix64(5 + 0x9E3779B97F4A7C15ull * 4);
  EXPECT_EQ(words_of(site_random(5, 3, 2, 7, 11)), words_of(philox(key, 11, (uint64_t{2} << 32) | 7)));
}

}  // namespace
}  // namespace lockstep::base
