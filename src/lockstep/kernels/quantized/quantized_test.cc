#include "lockstep/kernels/quantized/quantized.h"

#include <fmt/format.h>

#include <iterator>
#include <limits>

#include "lockstep/kernels/quantized/quantized_testing.h"
#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

constexpr Quantized kBoth[] = {Quantized::nf4, Quantized::fp8};

// The levels from their definitions, by code. NF4's are the paper's table; of e4m3, sign, exponent and
// fraction of each byte, divided by the largest.
std::vector<double> levels_of(Quantized format) {
  if (format == Quantized::nf4) return {std::begin(kNf4Levels), std::end(kNf4Levels)};
  std::vector<double> levels;
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    const bool number = (code & 127) != 127;
    levels.push_back(number ? (code < 128 ? magnitude : -magnitude) / 448 : NAN);
  }
  return levels;
}

int code_at(Quantized format, const std::vector<uint8_t>& blocks, int64_t i) {
  const auto block = static_cast<size_t>(i / 64 * (format == Quantized::nf4 ? 36 : 68) + 4);
  const auto inside = static_cast<size_t>(i % 64);
  if (format == Quantized::fp8) return blocks[block + inside];
  return blocks[block + inside / 2] >> (inside % 2 == 0 ? 4 : 0) & 15;
}

std::vector<float> weights(int64_t count, uint32_t seed) {
  std::vector<float> values;
  for (const double value : random_values(count, seed, 0.02)) values.push_back(static_cast<float>(value));
  for (size_t i = 64; i < std::min<size_t>(values.size(), 128); ++i) values[i] = 0;  // a block of zeros
  for (size_t i = 128; i < std::min<size_t>(values.size(), 192); ++i) values[i] *= 1e-30f;
  return values;
}

std::vector<uint8_t> quantized(Quantized format, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint8_t> blocks(static_cast<size_t>(quantized_bytes(format, count)), 0xFF);
  EXPECT_TRUE(quantize(format, values.data(), count, blocks.data()));
  return blocks;
}

// Every code is that of a nearest level of the value divided by the largest of its block.
TEST(Quantize, TakesTheNearestLevel) {
  for (const Quantized format : kBoth) {
    const std::vector<double> levels = levels_of(format);
    for (const int64_t count : {1, 63, 64, 65, 1000, 70000}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(format), count));
      const std::vector<float> values = weights(count, 3);
      const std::vector<uint8_t> blocks = quantized(format, values);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t first = i / 64 * 64, last = std::min(count, first + 64);
        double largest = 0;
        for (int64_t k = first; k < last; ++k)
          largest = std::max(largest, std::abs(static_cast<double>(values[static_cast<size_t>(k)])));
        float kept = 0;
        std::memcpy(&kept, blocks.data() + i / 64 * (format == Quantized::nf4 ? 36 : 68), 4);
        ASSERT_EQ(kept, static_cast<float>(largest));
        const double wanted = largest > 0 ? values[static_cast<size_t>(i)] / largest : 0;
        double nearest = 2;
        for (const double level : levels)
          nearest = std::min(nearest, std::isnan(level) ? 2 : std::abs(level - wanted));
        const double found = levels[static_cast<size_t>(code_at(format, blocks, i))];
        ASSERT_LE(std::abs(found - wanted), nearest + 1e-6) << "element " << i;
      }
    }
  }
}

TEST(Quantize, RefusesWhatIsNotFinite) {
  for (const Quantized format : kBoth) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values(200, 0.5f);
      values[130] = bad;
      std::vector<uint8_t> blocks(static_cast<size_t>(quantized_bytes(format, 200)));
      EXPECT_FALSE(quantize(format, values.data(), 200, blocks.data()));
    }
  }
}

// What was dequantized to fp32 has the same codes again: a checkpoint that holds it is read back bit for bit.
TEST(Quantize, GivesItsOwnValuesBack) {
  for (const Quantized format : kBoth) {
    std::vector<float> once = weights(100003, 5);
    ASSERT_TRUE(kernels::round_to(format, once.data(), 100003));
    std::vector<float> twice = once;
    ASSERT_TRUE(kernels::round_to(format, twice.data(), 100003));
    EXPECT_EQ(once, twice) << name_of(format);
  }
}

TEST(Quantize, Sizes) {
  EXPECT_EQ(quantized_bytes(Quantized::nf4, 64), 36);
  EXPECT_EQ(quantized_bytes(Quantized::nf4, 65), 72);
  EXPECT_EQ(quantized_bytes(Quantized::fp8, 4096 * 4096), 17825792);  // 8.5 bits each
  EXPECT_EQ(quantized_of("nf4"), Quantized::nf4);
  EXPECT_EQ(quantized_of("compute"), Quantized::none);
}

class DequantizeTest : public KernelTest {};

TEST_P(DequantizeTest, IsLevelTimesLargestRoundedOnce) {
  for (const Quantized format : kBoth) {
    const std::vector<double> levels = levels_of(format);
    for (const DType type : kEdgeTypes) {
      for (const int64_t count : {1, 8, 63, 64, 100, 2048, 30011}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name_of(format), device::name_of(type), count));
        const std::vector<float> values = weights(count, 7);
        const std::vector<uint8_t> blocks = quantized(format, values);
        Values expected;
        for (int64_t i = 0; i < count; ++i) {
          float largest = 0;
          std::memcpy(&largest, blocks.data() + i / 64 * (format == Quantized::nf4 ? 36 : 68), 4);
          const auto level = static_cast<float>(levels[static_cast<size_t>(code_at(format, blocks, i))]);
          expected.push_back(testing::round_to(type, level * largest));
        }
        const Memory from = upload_plain(blocks), to = garbage(count, type);
        run({&to}, [&] { kernels().dequantize({format, count, from.data(), type, to.data()}, launch()); });
        expect_close(download(to), expected, {0, 0});
      }
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(DequantizeTest);

}  // namespace
}  // namespace lockstep::kernels::testing
