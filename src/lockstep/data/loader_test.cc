#include "lockstep/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// Sample i reads i everywhere; every third label of the odd samples is ignored. Reading may be slow, and
// one sample may be broken.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t samples) : samples_(samples) {}
  int64_t broken = -1;
  std::chrono::microseconds delay{0};
  mutable std::atomic<int64_t> reads{0};

  int64_t vocab() const override { return samples_; }
  int64_t samples(Split split) const override { return split == Split::train ? samples_ : 5; }
  void read(Split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    ++reads;
    if (index == broken) throw base::DataError(201, "sample is broken");
    // Later samples come sooner, so that several workers finish out of order.
    std::this_thread::sleep_for(delay * (index % 3));
    for (size_t t = 0; t < inputs.size(); ++t) {
      inputs[t] = static_cast<int32_t>(index);
      labels[t] = index % 2 == 1 && t % 3 == 0 ? -1 : static_cast<int32_t>(index);
    }
  }
  std::string describe() const override { return "numbers"; }
  uint64_t content_hash() const override { return 0; }
  std::string decode(std::span<const int32_t>) const override { return ""; }
  std::vector<int32_t> encode(const std::string&) const override { return {}; }

 private:
  int64_t samples_;
};

constexpr int64_t kSeqLen = 4;

std::vector<int32_t> samples_of(const Batch& batch) {
  std::vector<int32_t> samples;
  for (size_t at = 0; at < batch.inputs.size(); at += kSeqLen) samples.push_back(batch.inputs[at]);
  return samples;
}

void expect_same(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.valid_labels, b.valid_labels);
}

struct Case {
  int64_t samples, global, slices, prefetch, workers, first_step;
};

class LoaderTest : public testing::TestWithParam<Case> {};

TEST_P(LoaderTest, GivesWhatReadBatchGives) {
  const Case c = GetParam();
  Numbers numbers(c.samples);
  numbers.delay = std::chrono::microseconds(20);
  const LoaderOptions options{.seed = 3,
                              .global = c.global,
                              .slices = c.slices,
                              .seq_len = kSeqLen,
                              .first_step = c.first_step,
                              .prefetch = c.prefetch,
                              .workers = c.workers};
  Loader loader(numbers, options);
  for (int64_t step = c.first_step; step < c.first_step + 40; ++step) {
    expect_same(*loader.next(), read_batch(numbers, options, step));
    EXPECT_GE(loader.waited_ms(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LoaderTest,
                         testing::Values(Case{100, 10, 1, 4, 1, 0}, Case{10, 4, 2, 4, 3, 0},
                                         Case{7, 4, 4, 1, 1, 5}, Case{3, 8, 2, 2, 8, 0},
                                         Case{1, 2, 1, 16, 4, 0}, Case{64, 64, 8, 0, 0, 1000},
                                         Case{5, 1, 1, 3, 2, 12345678}));

TEST(Loader, EveryEpochHoldsEverySampleOnceInAnotherOrder) {
  for (const int64_t samples : {1, 2, 10, 37}) {
    for (const int64_t global : {1, 4, 16}) {
      const Numbers numbers(samples);
      const LoaderOptions options{.seed = 9, .global = global, .seq_len = kSeqLen};
      std::vector<int32_t> sequence;
      for (int64_t step = 0; step * global < 5 * samples; ++step) {
        const std::vector<int32_t> batch = samples_of(read_batch(numbers, options, step));
        sequence.insert(sequence.end(), batch.begin(), batch.end());
      }
      std::vector<std::vector<int32_t>> epochs;
      for (int64_t e = 0; e < 5; ++e) {
        epochs.emplace_back(sequence.begin() + e * samples, sequence.begin() + (e + 1) * samples);
        std::vector<int32_t> sorted = epochs.back();
        std::sort(sorted.begin(), sorted.end());
        for (int64_t i = 0; i < samples; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
      }
      if (samples >= 10) {
        EXPECT_NE(epochs[0], epochs[1]);
      }
    }
  }
}

TEST(Loader, RanksTogetherReadTheWholeBatch) {
  const Numbers numbers(10);
  LoaderOptions options{.seed = 5, .global = 12, .slices = 6, .seq_len = kSeqLen};
  for (int64_t step = 0; step < 5; ++step) {
    const Batch whole = read_batch(numbers, options, step);
    std::vector<int32_t> inputs(whole.inputs.size());
    int64_t valid = 0;
    for (const std::vector<int64_t>& own : {std::vector<int64_t>{4, 1}, {0, 5}, {2, 3}}) {
      LoaderOptions mine = options;
      mine.own_slices = own;
      const Batch part = read_batch(numbers, mine, step);
      ASSERT_EQ(part.inputs.size(), 2u * 2 * kSeqLen);
      for (size_t k = 0; k < own.size(); ++k) {
        std::copy_n(part.inputs.begin() + static_cast<int64_t>(k) * 2 * kSeqLen, 2 * kSeqLen,
                    inputs.begin() + own[k] * 2 * kSeqLen);
      }
      valid += part.valid_labels;
    }
    EXPECT_EQ(inputs, whole.inputs);
    EXPECT_EQ(valid, whole.valid_labels);
  }
}

TEST(Loader, ReadsOnlyItsSlices) {
  const Numbers numbers(100);
  read_batch(numbers, {.global = 20, .slices = 10, .own_slices = {7}, .seq_len = kSeqLen}, 0);
  EXPECT_EQ(numbers.reads, 2);
}

TEST(Loader, CountsValidLabels) {
  const Numbers numbers(2);
  const Batch batch = read_batch(numbers, {.global = 2, .seq_len = kSeqLen}, 0);
  EXPECT_EQ(batch.valid_labels, 4 + 2);  // sample 1 ignores labels 0 and 3
}

TEST(Loader, ReadsNoFurtherThanAsked) {
  const Numbers numbers(1000);
  Loader loader(numbers, {.global = 10, .seq_len = kSeqLen, .prefetch = 3, .workers = 4});
  for (int64_t taken = 1; taken <= 3; ++taken) {
    loader.next();
    while (numbers.reads < (taken + 3) * 10) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(numbers.reads, (taken + 3) * 10);
  }
}

TEST(Loader, ABrokenSampleStopsItsStepAndNoneBefore) {
  Numbers numbers(40);
  const LoaderOptions options{.seed = 2, .global = 4, .seq_len = kSeqLen, .prefetch = 8, .workers = 4};
  const int64_t broken_step = 6;
  numbers.broken = samples_of(read_batch(numbers, options, broken_step))[2];
  Loader loader(numbers, options);
  for (int64_t step = 0; step < broken_step; ++step) EXPECT_EQ(loader.next()->step, step);
  for (int again = 0; again < 3; ++again) EXPECT_THROW(loader.next(), base::DataError);
}

TEST(Loader, StopsAtAnyMomentWithoutFinishingItsBatch) {
  Numbers numbers(30000);
  numbers.delay = std::chrono::microseconds(200);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    Loader loader(numbers, {.global = 10000, .seq_len = kSeqLen, .prefetch = 4, .workers = 4});
    std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
  }
  // Each would take two seconds to finish the batches it began.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Loader, EvaluationTakesEverySampleOnceAndPadsTheRest) {
  const Numbers numbers(100);  // with 5 to evaluate on
  const Batch first = read_eval_batch(numbers, 0, 3, kSeqLen),
              second = read_eval_batch(numbers, 1, 3, kSeqLen),
              third = read_eval_batch(numbers, 2, 3, kSeqLen);
  EXPECT_EQ(samples_of(first), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(first.valid_labels, 4 + 2 + 4);
  EXPECT_EQ(samples_of(second), (std::vector<int32_t>{3, 4, 0}));
  EXPECT_EQ(second.valid_labels, 2 + 4);
  EXPECT_EQ(std::count(second.labels.begin() + 2 * kSeqLen, second.labels.end(), -1), kSeqLen);
  EXPECT_EQ(third.valid_labels, 0);
}

TEST(Loader, RefusesImpossibleOptions) {
  const Numbers numbers(10);
  const LoaderOptions rows[] = {
      {.global = 10, .slices = 3}, {.global = 0},  {.global = 4, .slices = 2, .own_slices = {2}},
      {.global = 4, .slices = 0},  {.seq_len = 0}, {.global = 4, .slices = 2, .own_slices = {-1}},
      {.first_step = -1},
  };
  for (const LoaderOptions& options : rows) {
    EXPECT_THROW(Loader(numbers, options), base::Bug);
    EXPECT_THROW(read_batch(numbers, options, options.first_step), base::Bug);
  }
}

// Five words of input and one label a sample.
class Pictures final : public Dataset {
 public:
  int64_t vocab() const override { return 3; }
  int64_t samples(Split) const override { return 3; }
  int64_t inputs_per_sample(int64_t) const override { return 5; }
  int64_t labels_per_sample(int64_t) const override { return 1; }
  void read(Split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    ASSERT_EQ(inputs.size(), 5u);
    ASSERT_EQ(labels.size(), 1u);
    std::fill(inputs.begin(), inputs.end(), static_cast<int32_t>(10 + index));
    labels[0] = static_cast<int32_t>(index);
  }
  std::string describe() const override { return "pictures"; }
  uint64_t content_hash() const override { return 0; }
};

TEST(Loader, SamplesMayHaveTheirOwnSizes) {
  const Batch eval = read_eval_batch(Pictures(), 1, 2, kSeqLen);
  EXPECT_EQ(eval.inputs, (std::vector<int32_t>{12, 12, 12, 12, 12, 0, 0, 0, 0, 0}));
  EXPECT_EQ(eval.labels, (std::vector<int32_t>{2, -1}));
  EXPECT_EQ(eval.valid_labels, 1);
  const Batch batch = read_batch(Pictures(), {.global = 6, .slices = 3, .seq_len = kSeqLen}, 0);
  EXPECT_EQ(batch.inputs.size(), 30u);
  EXPECT_EQ(batch.labels.size(), 6u);
  EXPECT_EQ(batch.valid_labels, 6);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(batch.inputs[5 * i + 4], batch.labels[i] + 10);
}

}  // namespace
}  // namespace lockstep::data
