#include "lockstep/kernels/elementwise/elementwise.h"

#include <fmt/format.h>
#include <array>

#include <algorithm>

#include "lockstep/base/philox.h"
#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

class ElementwiseTest : public KernelTest {
 protected:
  Values cast(const Memory& from, DType to) {
    const Memory there = garbage(from.count(), to);
    run({&there}, [&] {
      kernels().cast({from.type(), to, from.count(), from.data(), there.data()}, launch());
    });
    return download(there);
  }
};

void expect_same(const Values& actual, const Values& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(actual[i])) << i;
    } else {
      ASSERT_EQ(actual[i], expected[i]) << i;
      ASSERT_EQ(std::signbit(actual[i]), std::signbit(expected[i])) << i;
    }
  }
}

TEST_P(ElementwiseTest, EveryNarrowNumberSurvivesTheWayThroughFp32) {
  for (const DType type : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(type));
    std::vector<uint16_t> bits(65536);
    Values expected(bits.size());
    for (size_t i = 0; i < bits.size(); ++i) {
      bits[i] = static_cast<uint16_t>(i);
      expected[i] = widen_bits(type, bits[i]);
    }
    const Memory narrow = upload_plain(bits, type);
    expect_same(cast(narrow, DType::f32), expected);
    expect_same(cast(upload(expected, DType::f32), type), expected);
    expect_same(cast(narrow, type), expected);
  }
}

TEST_P(ElementwiseTest, RoundsToNearestEven) {
  for (const DType type : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(type));
    Values values = {0.0,   -0.0, 1e-30,    1e-45,     3e38, 65519,  65520,
                     65535, 1e6,  INFINITY, -INFINITY, NAN,  5.9e-8, 2.9e-8};
    std::mt19937 generator(17);
    for (int i = 0; i < 100000; ++i) {  // any bits: every exponent, both signs
      const uint32_t bits = generator();
      float value;
      std::memcpy(&value, &bits, 4);
      values.push_back(value);
    }
    for (uint32_t i = 0; i < 4096; ++i) {  // ties and their neighbours
      const uint32_t bits = 0x3F000000u + (i << 12) + (i % 3 - 1);
      float value;
      std::memcpy(&value, &bits, 4);
      values.push_back(value);
    }
    Values expected;
    for (double& value : values) {
      value = static_cast<float>(value);
      expected.push_back(round_to(type, value));
    }
    expect_same(cast(upload(values, DType::f32), type), expected);
  }
}

TEST_P(ElementwiseTest, Adds) {
  for (const int64_t count : {1, 7, 100, 33333}) {
    const Values a = rounded(random_values(count, 1), DType::f32),
                 b = rounded(random_values(count, 2), DType::f32);
    Values expected(a);
    for (size_t i = 0; i < a.size(); ++i) expected[i] = round_to(DType::f32, a[i] + b[i]);
    const Memory into = upload(a, DType::f32), from = upload(b, DType::f32);
    run({&into}, [&] { kernels().add({count, into.as<float>(), from.as<float>()}, launch()); });
    EXPECT_EQ(download(into), expected) << count;
    for (const DType type : kEdgeTypes) {
      const Values x = rounded(a, type), y = rounded(b, type);
      for (size_t i = 0; i < x.size(); ++i) expected[i] = round_to(type, round_to(DType::f32, x[i] + y[i]));
      const Memory x_m = upload(x, type), y_m = upload(y, type);
      run({&y_m}, [&] { kernels().add_edges({type, count, x_m.data(), y_m.data(), y_m.data()}, launch()); });
      EXPECT_EQ(download(y_m), expected) << count << name_of(type);
    }
  }
}

TEST_P(ElementwiseTest, NormalNumbersAreNormalAndKeyed) {
  constexpr int64_t kSize = 200003;
  const auto fill = [&](int64_t count, uint64_t seed, uint64_t stream) {
    const Memory there = garbage(count, DType::f32);
    run({&there}, [&] { kernels().fill_normal({count, there.as<float>(), 3, 2, seed, stream}, launch()); });
    return download(there);
  };
  const Values values = fill(kSize, 1, 2);
  double mean = 0, square = 0, cube = 0, neighbours = 0;
  int64_t beyond = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double z = (values[i] - 3) / 2;
    mean += z / kSize;
    square += z * z / kSize;
    cube += z * z * z / kSize;
    neighbours += i > 0 ? z * (values[i - 1] - 3) / 2 / kSize : 0;
    beyond += std::abs(z) > 1.959964 ? 1 : 0;
  }
  EXPECT_NEAR(mean, 0, 0.01);
  EXPECT_NEAR(square, 1, 0.015);
  EXPECT_NEAR(cube, 0, 0.04);
  EXPECT_NEAR(neighbours, 0, 0.01);
  EXPECT_NEAR(static_cast<double>(beyond) / kSize, 0.05, 0.003);
  const Values shorter = fill(77, 1, 2);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), values.begin())) << "a value depends on the count";
  for (const int64_t first : {1, 2, 3, 4, 7, 1022, 65537}) {
    for (const int64_t count : {1, 2, 5, 4099}) {
      const Memory there = garbage(count, DType::f32);
      run({&there}, [&] { kernels().fill_normal({count, there.as<float>(), 3, 2, 1, 2, first}, launch()); });
      const Values part = download(there);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + first)) << first << " " << count;
    }
  }
  EXPECT_NE(shorter, fill(77, 1, 3));
  EXPECT_NE(shorter, fill(77, 2, 2));
}

TEST_P(ElementwiseTest, NormalNumbersAreBoxMullersBitForBit) {
  const Memory there = garbage(4096, DType::f32);
  kernels().fill_normal({4096, there.as<float>(), 0, 1, 1234, 5}, launch());
  const Values values = download(there);
  for (size_t i = 0; i < values.size(); i += 2) {
    const base::Random4 r = base::philox(base::mix64(1234 + 0x9E3779B97F4A7C15ull * 6), i / 4, 0x6E6F726D);
    const double radius = std::sqrt(-2 * std::log(((i % 4 == 0 ? r.x : r.z) + 1.0) / 4294967296.0));
    const double angle = 2 * M_PI * (i % 4 == 0 ? r.y : r.w) / 4294967296.0;
    ASSERT_NEAR(values[i], radius * std::cos(angle), 2e-6) << i;
    ASSERT_NEAR(values[i + 1], radius * std::sin(angle), 2e-6) << i;
  }
  // Recorded: the same on every device, and initial weights must not change under a user.
  EXPECT_EQ(Values(values.begin(), values.begin() + 5),
            (Values{0x1.bc0822p-2, 0x1.2c846p-1, -0x1.7c02bp-2, -0x1.b631bp-2, -0x1.b6a81ap-3}));
}

TEST_P(ElementwiseTest, SoftCapIsTanhFromZeroToFarAway) {
  for (const DType type : kEdgeTypes) {
    for (const float cap : {0.5f, 30.0f}) {
      Values values = {0, -0.0, 1e-8, -1e-8, 1e30, -1e30, INFINITY, -INFINITY};
      for (int i = -400; i <= 400; ++i) values.push_back(static_cast<double>(cap) * i / 40);
      values = rounded(values, type);
      Values expected;
      for (const double x : values)
        expected.push_back(static_cast<double>(cap) * std::tanh(x / static_cast<double>(cap)));
      const Memory there = upload(values, type);
      run({&there}, [&] {
        kernels().soft_cap({type, static_cast<int64_t>(values.size()), there.data(), cap}, launch());
      });
      expect_close(download(there), expected, {type == DType::f32 ? 5e-7 : tolerance(type).relative, 1e-30});
    }
  }
}

TEST_P(ElementwiseTest, RegroupTurnsGroupsAroundAndBack) {
  for (const DType type : kEdgeTypes) {
    for (const auto& [rows, outer, inner, width] :
         {std::array<int64_t, 4>{1, 1, 1, 1}, {3, 4, 3, 8}, {70, 5, 2, 7}, {2, 12, 3, 64}}) {
      const Values x = rounded(random_values(rows * outer * inner * width, 1), type);
      Values expected;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t j = 0; j < inner; ++j) {
          for (int64_t i = 0; i < outer; ++i) {
            const auto at = x.begin() + ((row * outer + i) * inner + j) * width;
            expected.insert(expected.end(), at, at + width);
          }
        }
      }
      const Memory there = upload(x, type), turned = garbage(there.count(), type),
                   back = garbage(there.count(), type);
      run({&turned}, [&] {
        kernels().regroup({type, rows, outer, inner, width, there.data(), turned.data()}, launch());
      });
      EXPECT_EQ(download(turned), expected);
      kernels().regroup({type, rows, inner, outer, width, turned.data(), back.data()}, launch());
      EXPECT_EQ(download(back), x);
    }
  }
}

TEST_P(ElementwiseTest, FillsAndCounts) {
  for (const int64_t count : {1, 7, 100, 33333}) {
    const Memory there = garbage(count, DType::f32);
    run({&there}, [&] { kernels().fill_value({count, there.as<float>(), 2.5f}, launch()); });
    EXPECT_EQ(download(there), Values(static_cast<size_t>(count), 2.5));
    for (const DType type : kEdgeTypes) {
      Values values = random_values(count, 1);
      int64_t expected = 0;
      for (size_t i = 0; i < values.size(); i += 5, ++expected)
        values[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
      const Memory values_m = upload(values, type), found = garbage(1, DType::i64);
      run({&found}, [&] {
        kernels().count_nonfinite({type, count, values_m.data(), found.as<int64_t>()}, launch());
      });
      EXPECT_EQ(download_plain<int64_t>(found), expected) << name_of(type) << count;
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(ElementwiseTest);

}  // namespace
}  // namespace lockstep::kernels::testing
