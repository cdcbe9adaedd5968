#include "lockstep/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lockstep::model {
namespace {

// The angle of the second position's slowest rotation, of two: as transformers has it for the same limits.
double slow_angle(double low_freq, double high_freq) {
  const RopeOptions options{.heads = 1,
                            .kv_heads = 1,
                            .head_dim = 4,
                            .positions = 2,
                            .theta = 100,  // wavelengths 6.3 and 62.8
                            .scaling = 8,
                            .low_freq = low_freq,
                            .high_freq = high_freq,
                            .original_context = 100};
  std::vector<float> table(8);
  fill_rope_table(options, table.data());
  return std::asin(table[7]);
}

TEST(Rope, SlowRotationsAreStretchedFastOnesAreNot) {
  EXPECT_NEAR(slow_angle(0.5, 1), 0.1, 1e-6);                   // 62.8 is below 100 / 1
  EXPECT_NEAR(slow_angle(2, 4), 0.1 / 8, 1e-6);                 // above 100 / 2
  const double blend = (100 / (20 * std::acos(-1.0)) - 1) / 3;  // between 100 / 4 and 100 / 1
  EXPECT_NEAR(slow_angle(1, 4), (1 - blend) * 0.1 / 8 + blend * 0.1, 1e-6);
  EXPECT_NEAR(slow_angle(4, 1), 0.1 / 8, 1e-6);  // limits that contradict each other: stretched
}

}  // namespace
}  // namespace lockstep::model
