// Preference tuning without any file: the loss against its formula, the reference, the batch's shape, and
// ranks. tools/real/dpo_test.sh compares whole runs with PyTorch.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/refusal.h"
#include "lockstep/kernels/loss/loss.h"
#include "lockstep/run/loop/preference.h"
#include "lockstep/run/loop/references.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

constexpr int64_t kVocab = 24, kPairs = 10, kLength = 12;

// Prompts of four tokens, shared by the two samples of a pair, and answers of one to six.
class Pairs final : public data::Dataset {
 public:
  int64_t vocab() const override { return kVocab; }
  int64_t samples(data::Split split) const override { return split == data::Split::train ? 2 * kPairs : 4; }
  bool has_pairs() const override { return true; }
  void read(data::Split split, int64_t index, std::span<int32_t> inputs,
            std::span<int32_t> labels) const override {
    const int64_t pair = index / 2 + (split == data::Split::eval ? kPairs : 0);
    const auto token = [&](int64_t i) {
      return static_cast<int32_t>((i < 4 ? 7 * pair + 3 * i : 5 * pair + 11 * i + 9 * (index % 2)) % kVocab);
    };
    const int64_t answer = 1 + (pair + 2 * (index % 2)) % 6;
    for (int64_t i = 0; i < kLength; ++i) {
      const auto at = static_cast<size_t>(i);
      inputs[at] = i < 4 + answer ? token(i) : 0;
      labels[at] = i >= 3 && i < 3 + answer ? token(i + 1) : kernels::kIgnoredLabel;
    }
  }
  std::string describe() const override { return "pairs"; }
  uint64_t content_hash() const override { return 3; }
};

recipe::Resolved pairs_recipe(std::vector<std::string> overrides = {}) {
  std::vector<std::string> all = {"tune.loss=dpo",         "data.seq_len=12", "batch.global=8",
                                  "batch.slices=4",        "run.steps=3",     "optim.schedule=constant",
                                  "precision.compute=fp32"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return tiny_recipe(std::move(all));
}

Session pairs_session(std::vector<std::string> overrides = {}) {
  return Session(make_plan(pairs_recipe(std::move(overrides)), {.dataset = std::make_shared<Pairs>()}));
}

struct Trained : Observer {
  std::vector<StepReport> steps;
  void stepped(const StepReport& report) override { steps.push_back(report); }
};

TEST(PreferenceTuning, BeginsAtLogTwoAndPartsTheAnswers) {
  Session session = pairs_session({"run.steps=20"});
  Trained seen;
  const Summary summary = train(session, {}, seen);
  ASSERT_EQ(seen.steps.size(), 20u);
  EXPECT_EQ(seen.steps[0].loss, std::log(2.0));  // the policy is the reference, to the last bit
  EXPECT_EQ(seen.steps[0].preference->margin(), 0);
  EXPECT_LT(seen.steps[19].loss, std::log(2.0));
  EXPECT_GT(seen.steps[19].preference->margin(), 0);
  ASSERT_TRUE(summary.eval_loss.has_value());
  EXPECT_NE(*summary.eval_loss, std::log(2.0));
}

// The loss of a step from the log-probabilities that it left, and the gradient's length by finite differences
// of it: a small step along the gradient lowers the loss by its square.
TEST(PreferenceTuning, LossAndGradientAreThoseOfTheFormula) {
  Session session = pairs_session({"tune.beta=0.3", "tune.label_smoothing=0.1", "optim.name=sgd",
                                   "optim.momentum=0", "optim.weight_decay=0", "optim.clip=0"});
  session.references = find_references(session, {}).value();
  const auto step = [&](float rate) {
    data::LoaderOptions options{.seed = 1, .global = 8, .slices = 4, .seq_len = kLength};
    options.references = &session.references;
    const data::Batch batch = data::read_batch(*session.plan.dataset, options, 0);
    session.executor->step({.seed = 1, .learning_rate = rate, .valid_tokens = 4},
                           {batch.inputs, batch.labels, batch.documents, batch.references});
    const kernels::StepState state = session.executor->read_oldest();
    const std::vector<double> now = session.executor->read_sequences();
    double loss = 0;
    for (size_t i = 0; i < 8; i += 2) {
      const double h = 0.3 * (now[i] - batch.references[i] - now[i + 1] + batch.references[i + 1]);
      loss += (0.9 * std::log(1 + std::exp(-h)) + 0.1 * std::log(1 + std::exp(h))) / 4;
    }
    EXPECT_NEAR(state.loss, loss, 1e-7);
    return state;
  };
  step(0.5f);  // away from the reference, where both slopes count
  constexpr float kSmall = 1e-3f;
  const kernels::StepState before = step(kSmall), after = step(0);
  const double squared = before.grad_norm * before.grad_norm;
  EXPECT_NEAR((before.loss - after.loss) / (kSmall * squared), 1, 0.02);
}

TEST(PreferenceTuning, ChunksOfLogitsChangeNoSum) {
  std::vector<double> norms;
  for (const char* chunk : {"1000", "7", "12", "24"}) {
    Session session = pairs_session({std::string("memory.logits_chunk=") + chunk});
    Trained seen;
    train(session, {}, seen);
    norms.push_back(seen.steps[2].loss);
    EXPECT_NEAR(norms.back(), norms.front(), 1e-6) << chunk;
  }
}

TEST(PreferenceTuning, HasTheSameBitsOnManyRanks) {
  if (test_device() != "cpu") GTEST_SKIP() << "ranks that are threads of one process: only on the CPU";
  const std::vector<std::string> in_strands = {"batch.product_strands=2", "batch.strands=4"};
  Observer nobody;
  Session alone = pairs_session(), alone_in_strands = pairs_session(in_strands);
  const std::string bits = train(alone, {}, nobody).params_hash,
                    strand_bits = train(alone_in_strands, {}, nobody).params_hash;
  struct Row {
    int ranks;
    std::vector<std::string> layout;
    bool strands = false;
  };
  for (const Row& row : std::initializer_list<Row>{{2, {"parallel.tensor=2"}, true},
                                                   {2, {"parallel.tensor=2", "parallel.sequence=true"}, true},
                                                   {4, {"parallel.tensor=2", "parallel.zero=2"}, true},
                                                   {2, {}},
                                                   {4, {}},
                                                   {2, {"parallel.zero=1"}},
                                                   {4, {"parallel.zero=3"}},
                                                   {2, {"parallel.pipeline=2"}},
                                                   {4, {"parallel.pipeline=2", "parallel.zero=3"}}}) {
    on_ranks(row.ranks, "shm", [&](comm::World& world) {
      Ranks ranks(world);
      std::vector<std::string> words = row.layout;
      if (row.strands) words.insert(words.end(), in_strands.begin(), in_strands.end());
      Session session(make_plan(pairs_recipe(words), {.dataset = std::make_shared<Pairs>()}, for_this(ranks)),
                      &ranks);
      Observer quiet;
      EXPECT_EQ(train(session, {}, quiet).params_hash, row.strands ? strand_bits : bits) << row.ranks;
    });
  }
}

// Two pairs, by hand; one whose answers gained alike is not a preference.
TEST(PreferenceReport, IsTheGainOverTheReference) {
  const PreferenceReport report = preference_of(std::vector<double>{-3, -8, -5, -6}, {-4, -6, -7, -8}, 0.5);
  EXPECT_DOUBLE_EQ(report.chosen, (0.5 * 1 + 0.5 * 2) / 2);
  EXPECT_DOUBLE_EQ(report.rejected, (0.5 * -2 + 0.5 * 2) / 2);
  EXPECT_DOUBLE_EQ(report.accuracy, 0.5);
}

TEST(PreferenceTuning, RefusesWhatItCannotDo) {
  struct Row {
    int number;
    std::vector<std::string> overrides;
  };
  for (const Row& row : std::initializer_list<Row>{{393, {"tune.loss=cross_entropy"}},
                                                   {395, {"batch.slices=8"}},
                                                   {395, {"batch.global=9", "batch.slices=auto"}},
                                                   {149, {"batch.sequence_strands=2"}},
                                                   {394, {"data.pack=true"}}}) {
    EXPECT_EQ(base::number_of_refusal([&] { pairs_session(row.overrides); }), row.number);
  }
  EXPECT_EQ(base::number_of_refusal([] { tiny_session({"tune.loss=dpo"}); }), 393);
  // "auto" finds slices that keep pairs together.
  EXPECT_EQ(pairs_session({"batch.slices=auto"}).plan.recipe().batch.slices.value, 1);
}

}  // namespace
}  // namespace lockstep::run
