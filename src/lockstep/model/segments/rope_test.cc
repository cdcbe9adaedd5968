#include "lockstep/model/segments/rope.h"

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
  fill_rope_table(options, 2, table.data());
  return std::asin(table[7]);
}

TEST(Rope, SlowRotationsAreStretchedFastOnesAreNot) {
  EXPECT_NEAR(slow_angle(0.5, 1), 0.1, 1e-6);                   // 62.8 is below 100 / 1
  EXPECT_NEAR(slow_angle(2, 4), 0.1 / 8, 1e-6);                 // above 100 / 2
  const double blend = (100 / (20 * std::acos(-1.0)) - 1) / 3;  // between 100 / 4 and 100 / 1
  EXPECT_NEAR(slow_angle(1, 4), (1 - blend) * 0.1 / 8 + blend * 0.1, 1e-6);
  EXPECT_NEAR(slow_angle(4, 1), 0.1 / 8, 1e-6);  // limits that contradict each other: stretched
}

TEST(Rope, LinearAndYarnAreThoseOfTransformers) {
  struct Row {
    const char* type;
    double attention;
    std::vector<double> frequencies;
    double amplitude;
    bool whole_limits = true;
  };
  const double usual = 1 + 0.1 * std::log(4.0);
  // Rotations 0 to 3 of theta 10000: 1, 0.1, 0.01, 0.001. In 100 positions they turn 15.9, 1.6, 0.16 and
  // 0.016 times, so that YaRN's blend runs from rotation 0 (8 turns: 0.3) to 2 (1 turn: 1.2); with limits
  // that are not rounded, rotation 1 is (1 - 0.29873) / (1.20182 - 0.29873) of the way.
  const Row rows[] = {
      {"linear", 0, {0.25, 0.025, 0.0025, 0.00025}, 1},
      {"yarn", 0, {1, 0.1 * (0.5 + 0.125), 0.0025, 0.00025}, usual},
      {"yarn", 1.5, {1, 0.1 * (0.5 + 0.125), 0.0025, 0.00025}, 1.5},
      {"yarn", 0, {1, 0.1 * (1 - 0.77652 * 0.75), 0.0025, 0.00025}, usual, false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.type);
    const RopeOptions options{.heads = 1,
                              .kv_heads = 1,
                              .head_dim = 8,
                              .positions = 2,
                              .theta = 10000,
                              .scaling = 4,
                              .type = row.type,
                              .low_freq = 1,
                              .high_freq = 8,
                              .whole_limits = row.whole_limits,
                              .original_context = 100,
                              .attention = row.attention};
    std::vector<float> table(16);
    fill_rope_table(options, 2, table.data());
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(table[i], row.amplitude, 1e-6);
      EXPECT_NEAR(table[8 + 4 + i], row.amplitude * std::sin(row.frequencies[i]), 1e-6) << i;
    }
  }
}

// The angle of the newest position's slowest rotation in a sequence, of four; then the amplitude.
std::pair<double, double> last_angle(const RopeOptions& options, int64_t length, int64_t position) {
  std::vector<float> table(static_cast<size_t>(options.positions * 8));
  fill_rope_table(options, length, table.data());
  const float* row = table.data() + position * 8;
  return {std::atan2(row[7], row[3]), std::hypot(row[7], row[3])};
}

// As transformers 5 has them: dynamic raises the base beyond the first context, longrope changes its factors
// there and is sharper everywhere.
TEST(Rope, DynamicAndLongropeDependOnTheLength) {
  RopeOptions options{.heads = 1,
                      .kv_heads = 1,
                      .head_dim = 8,
                      .positions = 64,
                      .theta = 10000,
                      .scaling = 4,
                      .type = "dynamic",
                      .original_context = 16};
  EXPECT_TRUE(depends_on_length(options));
  EXPECT_NEAR(last_angle(options, 16, 15).first, 15e-3, 1e-7);
  const double base = 10000 * std::pow(4 * 40.0 / 16 - 3, 8.0 / 6);
  EXPECT_NEAR(last_angle(options, 40, 10).first, 10 * std::pow(base, -0.75), 1e-7);
  const double later = 10000 * std::pow(4 * 51.0 / 16 - 3, 8.0 / 6);  // generated: a sequence of 51 by then
  EXPECT_NEAR(last_angle(options, 40, 50).first, 50 * std::pow(later, -0.75), 1e-7);

  options.type = "longrope";
  options.short_factors = {1, 1, 1, 2};
  options.long_factors = {1, 1, 1, 5};
  const double amplitude = std::sqrt(1 + std::log(4.0) / std::log(16.0));
  EXPECT_NEAR(last_angle(options, 16, 10).first, 10e-3 / 2, 1e-7);
  EXPECT_NEAR(last_angle(options, 17, 10).first, 10e-3 / 5, 1e-7);
  EXPECT_NEAR(last_angle(options, 10, 20).first, 20e-3 / 5, 1e-7);
  EXPECT_NEAR(last_angle(options, 16, 10).second, amplitude, 1e-6);
  EXPECT_NEAR(last_angle(options, 17, 10).second, amplitude, 1e-6);
  options.attention = 1.5;
  EXPECT_NEAR(last_angle(options, 17, 10).second, 1.5, 1e-6);
}

TEST(Rope, FactorsAreNumbersWithCommas) {
  EXPECT_EQ(rope_factors("1,2.5 , 1e1"), (std::vector<double>{1, 2.5, 10}));
  for (const char* bad : {"", "1,,2", "1;2", "0", "-1", "nan", "inf", "1 2"})
    EXPECT_TRUE(rope_factors(bad).empty()) << bad;
}

}  // namespace
}  // namespace lockstep::model
