#include "lockstep/kernels/loss.h"

#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

class LossTest : public KernelTest {};

TEST_P(LossTest, CrossEntropyMatchesReference) {
  const StepInputs inputs{.valid_tokens = 77};
  StepState state;
  state.loss_scale = 8;
  for (const DType type : kEdgeTypes) {
    for (const int64_t rows : {1, 33}) {
      for (const int64_t vocab : {1, 7, 100, 1031}) {
        for (const bool gradient : {false, true}) {
          SCOPED_TRACE(fmt::format("{} rows {} vocab {} gradient {}", name_of(type), rows, vocab, gradient));
          const Values logits = rounded(random_values(rows * vocab, 1, 4), type);
          std::vector<int32_t> labels(static_cast<size_t>(rows));
          Values losses(labels.size()), expected = logits;
          for (size_t row = 0; row < labels.size(); ++row) {
            const auto width = static_cast<size_t>(vocab);
            const double* x = &logits[row * width];
            const bool ignored = row % 5 == 3;
            labels[row] = ignored ? kIgnoredLabel : static_cast<int32_t>(row * 7 % width);
            const double top = *std::max_element(x, x + vocab);
            double sum = 0;
            for (size_t i = 0; i < width; ++i) sum += std::exp(x[i] - top);
            if (!ignored) losses[row] = top + std::log(sum) - x[labels[row]];
            for (size_t i = 0; gradient && i < width; ++i) {
              const double p = std::exp(x[i] - top) / sum,
                           right = static_cast<int32_t>(i) == labels[row] ? 1 : 0;
              expected[row * width + i] = ignored ? 0 : (p - right) * 8 / 77;
            }
          }
          const Memory logits_m = upload(logits, type), labels_m = upload_ints(labels);
          const Memory losses_m = garbage(rows, DType::f32);
          const Memory inputs_m = upload_plain<StepInputs>({inputs}),
                       state_m = upload_plain<StepState>({state});
          const CrossEntropy op{type,
                                rows,
                                vocab,
                                logits_m.data(),
                                labels_m.as<int32_t>(),
                                losses_m.as<float>(),
                                gradient,
                                inputs_m.as<StepInputs>(),
                                state_m.as<StepState>()};
          run({&logits_m, &losses_m}, [&] { kernels().cross_entropy(op, launch()); });
          expect_close(download(losses_m), losses, tolerance(DType::f32), "losses");
          if (gradient) {
            Tolerance allowed = tolerance(type, type == DType::f32 ? 0.1 : 1e-4);
            expect_close(download(logits_m), expected, allowed, "gradient");
          } else {
            EXPECT_EQ(download(logits_m), expected);
          }
        }
      }
    }
  }
}

TEST_P(LossTest, NotANumberInLogitsShows) {
  const Memory logits = upload({1, NAN, 3, -INFINITY, 0, 0}, DType::f32), labels = upload_ints({0, 2});
  const Memory losses = garbage(2, DType::f32);
  kernels().cross_entropy({DType::f32, 2, 3, logits.data(), labels.as<int32_t>(), losses.as<float>()},
                          launch());
  const Values values = download(losses);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_NEAR(values[1], std::log(2.0), 1e-6);  // a masked logit has no part in the sum
}

TEST_P(LossTest, SumFoldsRowsInParts) {
  for (const int64_t rows : {1, 7, 64, 65, 1000, 40000}) {
    const Values losses = rounded(random_values(rows, 3), DType::f32);
    const int64_t parts = row_parts(rows);
    double expected = 0;
    for (int64_t part = 0; part < parts; ++part) {
      double sum = 0;
      for (int64_t row = part_begin(rows, parts, part); row < part_begin(rows, parts, part + 1); ++row) {
        sum += losses[static_cast<size_t>(row)];
      }
      expected += sum;
    }
    const Memory losses_m = upload(losses, DType::f32), sum_m = garbage(1, DType::f64);
    run({&sum_m}, [&] { kernels().loss_sum({rows, losses_m.as<float>(), sum_m.as<double>()}, launch()); });
    EXPECT_EQ(download(sum_m)[0], expected) << rows;
  }
}

LOCKSTEP_ON_EVERY_DEVICE(LossTest);

}  // namespace
}  // namespace lockstep::kernels::testing
