#include "lockstep/kernels/elementwise/dropout.h"

#include <fmt/format.h>

#include "lockstep/base/philox.h"
#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

class DropoutTest : public KernelTest {
 protected:
  Values apply(const Values& x, DType type, float rate, const StepInputs& inputs, uint32_t slice,
               uint32_t site) {
    const Memory there = upload(x, type), inputs_m = upload_plain<StepInputs>({inputs});
    const Dropout op{
        type, there.count(), 0, there.data(), there.data(), rate, slice, site, inputs_m.as<StepInputs>()};
    run({&there}, [&] { kernels().dropout(op, launch()); });
    return download(there);
  }
};

TEST_P(DropoutTest, MaskIsTheDocumentedFunction) {
  const StepInputs inputs{.seed = 42, .step = 7};
  const float rate = 0.3f;
  for (const DType type : kEdgeTypes) {
    for (const size_t count : {1, 7, 100, 255, 257, 20001}) {
      SCOPED_TRACE(fmt::format("{} count {}", name_of(type), count));
      const Values x = rounded(random_values(static_cast<int64_t>(count), 1), type);
      Values expected(count);
      for (size_t i = 0; i < count; ++i) {
        const base::Random4 random = base::site_random(42, 7, 3, 5, i / 4);
        const uint32_t words[] = {random.x, random.y, random.z, random.w};
        const bool keep = base::unit_float(words[i % 4]) >= rate;
        expected[i] = keep ? x[i] / (1 - static_cast<double>(rate)) : 0;
      }
      expect_close(apply(x, type, rate, inputs, 3, 5), expected, tolerance(type));
    }
  }
}

// Ranks that hold some columns of every row.
TEST_P(DropoutTest, ColumnsDrawTheMaskOfTheWhole) {
  const StepInputs inputs{.seed = 42, .step = 7};
  const int64_t rows = 37;
  for (const DType type : kEdgeTypes) {
    for (const auto& [whole_row, parts] : {std::pair<int64_t, int64_t>{64, 4}, {30, 3}, {14, 2}}) {
      SCOPED_TRACE(fmt::format("{} {} columns in {} parts", name_of(type), whole_row, parts));
      const Values x = rounded(random_values(rows * whole_row, 2), type);
      const Values whole = apply(x, type, 0.3f, inputs, 3, 5);
      const Memory inputs_m = upload_plain<StepInputs>({inputs});
      const int64_t width = whole_row / parts;
      for (int64_t part = 0; part < parts; ++part) {
        Values mine, expected;
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < width; ++c) {
            const auto at = static_cast<size_t>(r * whole_row + part * width + c);
            mine.push_back(x[at]);
            expected.push_back(whole[at]);
          }
        }
        const Memory there = upload(mine, type);
        Dropout op{.type = type, .count = rows * width, .first = part * width, .rate = 0.3f};
        op.x = op.y = there.data();
        op.slice = 3, op.site = 5;
        op.inputs = inputs_m.as<StepInputs>();
        op.width = width, op.row = whole_row;
        run({&there}, [&] { kernels().dropout(op, launch()); });
        EXPECT_EQ(download(there), expected);
      }
    }
  }
}

TEST_P(DropoutTest, PiecesDrawTheMaskOfTheWhole) {
  const StepInputs inputs{.seed = 42, .step = 7};
  const int64_t count = 20001;
  const std::vector<std::vector<int64_t>> cuts = {
      {0, 1, count}, {0, 4, 260, 10000, count}, {0, 2, 3, 259, 8191, 16386, count}};
  for (const DType type : kEdgeTypes) {
    const Values x = rounded(random_values(count, 2), type);
    const Values whole = apply(x, type, 0.3f, inputs, 3, 5);
    const Memory there = upload(x, type), inputs_m = upload_plain<StepInputs>({inputs});
    for (const std::vector<int64_t>& cut : cuts) {
      const Memory y = garbage(count, type);
      for (size_t piece = 0; piece + 1 < cut.size(); ++piece) {
        const int64_t first = cut[piece], at = first * device::size_of(type);
        Dropout op{.type = type, .count = cut[piece + 1] - first, .first = first, .rate = 0.3f};
        op.x = there.as<char>() + at;
        op.y = y.as<char>() + at;
        op.slice = 3;
        op.site = 5;
        op.inputs = inputs_m.as<StepInputs>();
        run({&y}, [&] { kernels().dropout(op, launch()); });
      }
      EXPECT_EQ(download(y), whole) << name_of(type) << " in " << cut.size() - 1 << " pieces";
    }
  }
}

TEST_P(DropoutTest, KeepsTheMeanAndDropsTheRate) {
  const Values ones(100000, 1.0);
  for (const float rate : {0.0f, 0.1f, 0.5f}) {
    const Values y = apply(ones, DType::f32, rate, {.seed = 1, .step = 1}, 0, 0);
    double sum = 0, dropped = 0;
    for (const double value : y) sum += value, dropped += value == 0 ? 1 : 0;
    EXPECT_NEAR(dropped / 1e5, rate, 0.006) << rate;
    EXPECT_NEAR(sum / 1e5, 1, 0.012) << rate;
  }
}

TEST_P(DropoutTest, EveryKeyGivesAnotherMask) {
  const Values ones(256, 1.0);
  const auto mask = [&](uint64_t seed, uint64_t step, uint32_t slice, uint32_t site) {
    return apply(ones, DType::f32, 0.5f, {.seed = seed, .step = step}, slice, site);
  };
  const Values base = mask(1, 1, 1, 1);
  EXPECT_EQ(base, mask(1, 1, 1, 1));
  EXPECT_NE(base, mask(2, 1, 1, 1));
  EXPECT_NE(base, mask(1, 2, 1, 1));
  EXPECT_NE(base, mask(1, 1, 2, 1));
  EXPECT_NE(base, mask(1, 1, 1, 2));
}

LOCKSTEP_ON_EVERY_DEVICE(DropoutTest);

}  // namespace
}  // namespace lockstep::kernels::testing
