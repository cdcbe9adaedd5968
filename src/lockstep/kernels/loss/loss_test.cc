#include "lockstep/kernels/loss/loss.h"

#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

class LossTest : public KernelTest {};

TEST_P(LossTest, CrossEntropyMatchesReference) {
  const StepInputs inputs{.valid_tokens = 77};
  StepState state;
  state.loss_scale = 8;
  // The last ones are so long that several blocks of a GPU share a row, or that it does not fit on the chip.
  std::vector<std::pair<int64_t, int64_t>> sizes = {{3, 50304}, {2, 100000}, {2, 128256}, {2, 250000}};
  for (const int64_t vocab : {1, 7, 100, 1031}) sizes.insert(sizes.end(), {{1, vocab}, {33, vocab}});
  for (const DType type : kEdgeTypes) {
    for (const auto& [rows, vocab] : sizes) {
      for (const bool gradient : {false, true}) {
        SCOPED_TRACE(fmt::format("{} rows {} vocab {} gradient {}", name_of(type), rows, vocab, gradient));
        const double cap = rows == 33 ? 9 : 0;  // beyond what the logits reach, as a cap is
        const Values logits = rounded(random_values(rows * vocab, 1, cap > 0 ? 2 : 4), type);
        std::vector<int32_t> labels(static_cast<size_t>(rows));
        Values losses(labels.size()), expected = logits;
        for (size_t row = 0; row < labels.size(); ++row) {
          const auto width = static_cast<size_t>(vocab);
          const double* x = &logits[row * width];
          const bool ignored = row % 5 == 3;
          labels[row] = ignored ? kIgnoredLabel : static_cast<int32_t>(row * 40503 % width);
          const double top = *std::max_element(x, x + vocab);
          double sum = 0;
          for (size_t i = 0; i < width; ++i) sum += std::exp(x[i] - top);
          if (!ignored) losses[row] = top + std::log(sum) - x[labels[row]];
          for (size_t i = 0; gradient && i < width; ++i) {
            const double p = std::exp(x[i] - top) / sum,
                         right = static_cast<int32_t>(i) == labels[row] ? 1 : 0;
            const double bent = cap > 0 ? x[i] / cap : 0;
            expected[row * width + i] = ignored ? 0 : (p - right) * 8 / 77 * (1 - bent * bent);
          }
        }
        // Every other size with rows apart, which vectors then read past the vocabulary.
        const int64_t row = (rows + vocab) % 2 == 0 ? (vocab + 7) / 8 * 8 + 8 : vocab;
        const Memory logits_m = upload(rows_apart(logits, vocab, row), type), labels_m = upload_ints(labels);
        const Memory losses_m = garbage(rows, DType::f32);
        const Memory inputs_m = upload_plain<StepInputs>({inputs}),
                     state_m = upload_plain<StepState>({state});
        const CrossEntropy op{.type = type,
                              .rows = rows,
                              .vocab = vocab,
                              .row = row,
                              .logits = logits_m.data(),
                              .labels = labels_m.as<int32_t>(),
                              .losses = losses_m.as<float>(),
                              .gradient = gradient,
                              .inputs = inputs_m.as<StepInputs>(),
                              .state = state_m.as<StepState>(),
                              .softcap = static_cast<float>(cap)};
        run({&logits_m, &losses_m}, [&] { kernels().cross_entropy(op, launch()); });
        expect_close(download(losses_m), losses, tolerance(DType::f32), "losses");
        const Values after = columns_of(download(logits_m), row, 0, vocab);
        if (gradient) {
          Tolerance allowed = tolerance(type, type != DType::f32 ? 1e-4 : 0.1);
          expect_close(after, expected, allowed, "gradient");
          for (const double rest : columns_of(download(logits_m), row, vocab, row)) ASSERT_EQ(rest, 0);
        } else {
          EXPECT_EQ(after, expected);
        }
      }
    }
  }
}

struct VocabCase {
  DType type;
  int64_t rows;
  std::vector<int64_t> cuts;  // where parts begin, and the size of the vocabulary
  bool gradient;
};

std::vector<VocabCase> vocab_cases() {
  const std::vector<std::vector<int64_t>> cuts = {{0, 1},
                                                  {0, 1031},
                                                  {0, 1, 2},
                                                  {0, 512, 1024},
                                                  {0, 516, 1031},
                                                  {0, 64, 128, 192, 256},
                                                  {0, 3, 50, 99, 100},
                                                  {0, 2, 3, 3, 3}};  // padding fills some parts
  std::vector<VocabCase> all;
  for (const DType type : kEdgeTypes) {
    for (const auto& of_parts : cuts) {
      for (const bool gradient : {false, true}) all.push_back({type, 33, of_parts, gradient});
    }
  }
  return all;
}

TEST_P(LossTest, VocabularyInPartsGivesTheLossesOfTheWhole) {
  const Memory inputs = upload_plain<StepInputs>({StepInputs{.valid_tokens = 77}});
  StepState scaled;
  scaled.loss_scale = 8;
  const Memory state = upload_plain<StepState>({scaled});
  for (const VocabCase& c : vocab_cases()) {
    const int64_t vocab = c.cuts.back(), parts = static_cast<int64_t>(c.cuts.size()) - 1;
    SCOPED_TRACE(fmt::format("{} vocab {} parts {} gradient {}", name_of(c.type), vocab, parts, c.gradient));
    Values logits = rounded(random_values(c.rows * vocab, 4, 4), c.type);
    logits[0] = -INFINITY;  // masked: in some cases all that a part has of row 0
    std::vector<int32_t> labels;
    for (int64_t row = 0; row < c.rows; ++row)
      labels.push_back(row % 5 == 3 ? kIgnoredLabel : static_cast<int32_t>((vocab - 1 + row * 7) % vocab));
    if (vocab == 1) logits[0] = 0;
    const Memory labels_m = upload_ints(labels), whole = upload(logits, c.type);
    const Memory whole_losses = garbage(c.rows, DType::f32), losses = garbage(c.rows, DType::f32);
    CrossEntropy op{.type = c.type, .rows = c.rows, .vocab = vocab, .logits = whole.data()};
    op.labels = labels_m.as<int32_t>();
    op.losses = whole_losses.as<float>();
    op.gradient = c.gradient;
    op.inputs = inputs.as<StepInputs>();
    op.state = state.as<StepState>();
    op.softcap = vocab == 1024 || vocab == 100 ? 20.0f : 0.0f;
    if (op.softcap > 0) logits[0] = -3, whole.set_bytes(upload(logits, c.type).bytes());
    kernels().cross_entropy(op, launch());

    const auto row_of = [](int64_t columns) {
      return columns % 2 != 0 || columns == 0 ? (columns + 8) / 8 * 8 : columns;
    };
    const Memory stats = garbage(parts * c.rows * 3, DType::f32);
    std::vector<Memory> logits_of;
    for (size_t part = 0; part + 1 < c.cuts.size(); ++part) {
      const int64_t first = c.cuts[part], end = c.cuts[part + 1];
      const Values mine = columns_of(logits, vocab, first, end);
      logits_of.push_back(upload(end == first ? Values(static_cast<size_t>(c.rows * row_of(0)), 30000)
                                              : rows_apart(mine, end - first, row_of(end - first)),
                                 c.type));
      VocabStats of_part{.type = c.type, .rows = c.rows, .vocab = end - first, .first = first};
      of_part.row = row_of(end - first);
      of_part.logits = logits_of.back().data();
      of_part.labels = op.labels;
      of_part.stats = stats.as<float>() + static_cast<int64_t>(part) * c.rows * 3;
      run({&stats}, [&] { kernels().vocab_stats(of_part, launch()); });
    }
    const Tolerance allowed = tolerance(c.type, c.type == DType::f32 ? 0.1 : 1e-4);
    for (size_t part = 0; part + 1 < c.cuts.size(); ++part) {
      const int64_t first = c.cuts[part], end = c.cuts[part + 1];
      const int64_t row = row_of(end - first);
      VocabCrossEntropy of_part{.type = c.type, .rows = c.rows, .vocab = end - first, .first = first};
      of_part.parts = parts, of_part.row = row;
      of_part.logits = logits_of[part].data();
      of_part.labels = op.labels;
      of_part.stats = stats.as<float>();
      of_part.losses = losses.as<float>();
      of_part.gradient = c.gradient;
      of_part.inputs = op.inputs;
      of_part.state = op.state;
      of_part.softcap = op.softcap;
      run({&logits_of[part], &losses}, [&] { kernels().vocab_cross_entropy(of_part, launch()); });
      expect_close(download(losses), download(whole_losses), tolerance(DType::f32), "losses");
      const Values after = columns_of(download(whole), vocab, first, end);
      const Values got = columns_of(download(logits_of[part]), row, 0, end - first);
      if (c.gradient) {
        expect_close(got, after, allowed, fmt::format("part {}", part));
        for (const double rest : columns_of(download(logits_of[part]), row, end - first, row))
          ASSERT_EQ(rest, 0);
      } else {
        EXPECT_EQ(got, after);
      }
    }
  }
}

TEST_P(LossTest, NotANumberInLogitsShows) {
  const Memory logits = upload({1, NAN, 3, -INFINITY, 0, 0}, DType::f32), labels = upload_ints({0, 2});
  const Memory losses = garbage(2, DType::f32);
  kernels().cross_entropy({.rows = 2,
                           .vocab = 3,
                           .logits = logits.data(),
                           .labels = labels.as<int32_t>(),
                           .losses = losses.as<float>()},
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

// The loss, and weights that are its slopes by finite differences of the rows' losses.
TEST_P(LossTest, PreferencesMatchTheirFormula) {
  for (const auto& [pairs, length] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{1, 1}, {3, 7}, {2, 700}}) {
    for (const double smoothing : {0.0, 0.2}) {
      SCOPED_TRACE(fmt::format("{} pairs of {} smoothing {}", pairs, length, smoothing));
      const double beta = 0.25;
      const auto rows = static_cast<size_t>(2 * pairs * length);
      Values losses = rounded(random_values(2 * pairs * length, 1), DType::f32),
             references(rows / static_cast<size_t>(length));
      for (size_t i = 0; i < references.size(); ++i) references[i] = 0.5 * static_cast<double>(i % 3) - 1;
      std::vector<int32_t> labels(rows, 5);
      const bool last_is_none = pairs > 1;
      if (last_is_none) std::fill(labels.end() - 2 * length, labels.end(), kIgnoredLabel);
      const auto of_pair = [&](int64_t pair) {
        if (last_is_none && pair + 1 == pairs) return 0.0;
        double sums[2] = {0, 0};
        for (int64_t i = 0; i < 2 * length; ++i)
          sums[i / length] -= losses[static_cast<size_t>(2 * pair * length + i)];
        const auto at = static_cast<size_t>(2 * pair);
        const double h = beta * (sums[0] - references[at] - sums[1] + references[at + 1]);
        return (1 - smoothing) * std::log(1 + std::exp(-h)) + smoothing * std::log(1 + std::exp(h));
      };
      double expected = 0;
      for (int64_t pair = 0; pair < pairs; ++pair) expected += of_pair(pair);
      const Memory losses_m = upload(losses, DType::f32), labels_m = upload_ints(labels);
      const Memory references_m = upload(references, DType::f64);
      const Memory sequences_m = garbage(2 * pairs, DType::f64),
                   weights_m = garbage(2 * pairs * length, DType::f32), sum_m = garbage(1, DType::f64);
      const PreferenceLoss op{.pairs = pairs,
                              .length = length,
                              .labels = labels_m.as<int32_t>(),
                              .losses = losses_m.as<float>(),
                              .references = references_m.as<double>(),
                              .beta = static_cast<float>(beta),
                              .smoothing = static_cast<float>(smoothing),
                              .sequences = sequences_m.as<double>(),
                              .weights = weights_m.as<float>(),
                              .sum = sum_m.as<double>()};
      run({&sequences_m, &weights_m, &sum_m}, [&] { kernels().preference_loss(op, launch()); });
      EXPECT_NEAR(download(sum_m)[0], expected, 1e-6);
      const Values weights = download(weights_m);
      for (const size_t row : {size_t{0}, rows / 2, rows - 1}) {
        const auto pair = static_cast<int64_t>(row) / (2 * length);
        const double kept = losses[row], step = 1e-4;
        losses[row] = kept + step;
        const double above = of_pair(pair);
        losses[row] = kept - step;
        const double slope = (above - of_pair(pair)) / (2 * step);
        losses[row] = kept;
        EXPECT_NEAR(weights[row], slope, 1e-6) << row;
      }
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(LossTest);

}  // namespace
}  // namespace lockstep::kernels::testing
