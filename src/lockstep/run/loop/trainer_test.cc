#include "lockstep/run/loop/trainer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

struct Watcher : Observer {
  std::vector<StepReport> steps;
  std::vector<double> evals;
  std::vector<std::string> events, why;
  void stepped(const StepReport& r) override { steps.push_back(r); }
  void evaluated(int64_t, double loss) override { evals.push_back(loss); }
  void event(const std::string& name, const std::string& reason, int64_t) override {
    events.push_back(name);
    why.push_back(reason);
  }
};

TEST(Trainer, LearnsInEveryPrecisionAndWithEveryOptimizer) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"precision.compute=bf16"},
                                                {"precision.compute=fp16"},
                                                {"precision.compute=fp8"},
                                                {"precision.compute=fp8", "precision.fp8_scaling=block",
                                                 "precision.fp8_gradients=e4m3", "model.family=llama"},
                                                {"optim.name=lion", "optim.lr=0.006"},
                                                {"optim.name=sgd", "optim.lr=1"},
                                                {"model.family=llama"},
                                                {"model.family=mlp"}}) {
    std::vector<std::string> all = {"run.steps=40", "batch.global=16", "batch.slices=2",
                                    "log.eval_batches=2"};
    all.insert(all.end(), words.begin(), words.end());
    Session session = tiny_session(all);
    Watcher watcher;
    const Summary summary = train(session, {}, watcher);
    EXPECT_TRUE(summary.finished);
    ASSERT_EQ(watcher.steps.size(), 40u);
    EXPECT_LT(summary.loss, watcher.steps[0].loss - 0.8) << (words.empty() ? "" : words[0]);
    EXPECT_EQ(watcher.steps.back().tokens, 40 * 16 * 8);
  }
}

TEST(Trainer, MeasuredMemoryIsWhatThePlanSaid) {
  for (const char* recompute : {"none", "full", "none precision.compute=fp8", "full precision.compute=fp8"}) {
    std::vector<std::string> words = {"model.hidden=64", "data.seq_len=64"};
    std::istringstream more("memory.recompute=" + std::string(recompute));
    for (std::string word; more >> word;) words.push_back(word);
    Session session = tiny_session(words);
    one_step(session, 0, 0);
    const auto planned = static_cast<double>(session.plan.memory.peak_bytes());
    EXPECT_NEAR(static_cast<double>(session.plan.device->peak_allocated_bytes()), planned, 0.02 * planned);
  }
}

TEST(Trainer, StopsAtAStepBoundaryAndSaves) {
  Session session = tiny_session({"run.steps=50"});
  std::atomic<int> signal{0};
  struct Stopper : Observer {
    std::atomic<int>& signal;
    explicit Stopper(std::atomic<int>& s) : signal(s) {}
    void stepped(const StepReport& r) override {
      if (r.step == 3) signal = 15;
    }
  } stopper(signal);
  int64_t saved = 0;
  const Summary summary =
      train(session, {.stop_signal = &signal, .save = [&](int64_t step) { saved = step; }}, stopper);
  EXPECT_FALSE(summary.finished);
  EXPECT_GE(summary.steps, 3);
  EXPECT_LE(summary.steps, test_device() == "cpu" ? 3 : 4);  // results are read one step late on a GPU
  EXPECT_EQ(saved, summary.steps);
}

// A weight that is not a number: the block that holds it is named, and nothing is updated.
TEST(Trainer, NamesTheBlockWhereTheLossStopsBeingFinite) {
  LS_NEEDS_HOST_MEMORY();
  Session session = tiny_session({"run.steps=3"});
  for (const Parameters::Named& param : session.parameters->named()) {
    if (param.name == "transformer.h.1.mlp.c_fc.weight")
      param.master.values.as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  }
  const std::string before = session.parameters->hash();
  Watcher watcher;
  try {
    train(session, {}, watcher);
    FAIL() << "trained on";
  } catch (const base::RunError& error) {
    EXPECT_NE(std::string(error.what()).find("slice 0, block layer 1 (up)"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(session.parameters->hash(), before);
}

// What can be gone on from when the learning rate was too high: weights, moments and state of the step
// before.
TEST(Trainer, SavesWhatStoodBeforeALossThatIsNotFinite) {
  const auto diverging = [](int64_t steps) {
    return tiny_session({fmt::format("run.steps={}", steps), "optim.lr=1000", "optim.weight_decay=10",
                         "optim.schedule=constant", "optim.warmup=0", "optim.clip=0"});
  };
  Session session = diverging(40);
  std::vector<int64_t> saved;
  std::string hash;
  kernels::StepState state, wanted;
  TrainOptions options;
  options.save = [&](int64_t step) {
    saved.push_back(step);
    hash = session.parameters->hash();
    session.parameters->read(session.parameters->state(), &state);
  };
  Watcher watcher;
  const std::string said = base::refusal(601, [&] { train(session, options, watcher); });
  ASSERT_EQ(saved.size(), 1u) << said;
  ASSERT_GT(saved[0], 0);
  EXPECT_NE(said.find(fmt::format("was saved as the checkpoint of step {}", saved[0])), std::string::npos)
      << said;
  Session before = diverging(saved[0]);
  train(before, {}, watcher);
  EXPECT_EQ(hash, before.parameters->hash());
  before.parameters->read(before.parameters->state(), &wanted);
  EXPECT_EQ(state.applied, wanted.applied);
  EXPECT_EQ(state.skipped, 0);
  EXPECT_EQ(state.beta1_power, wanted.beta1_power);
}

// A clock that only the test moves: a step takes a second, a save what the row says.
int64_t clock_of_the_test_ns = 0;

TEST(Trainer, SavesByTime) {
  const struct {
    double seconds, save_takes;
    int64_t every;
    std::vector<int64_t> saved;
  } rows[] = {
      {0, 0, 0, {8}},
      {1e6, 0, 0, {8}},
      {1, 0, 0, {2, 4, 6, 8}},  // a request travels with the step that begins then
      {2, 0, 0, {3, 6, 8}},
      {1, 0.03, 0, {2, 6, 8}},  // training stands still for less than 1 % of the time
      {0, 0, 5, {5, 8}},
  };
  struct Stepper : Watcher {
    void stepped(const StepReport& r) override {
      Watcher::stepped(r);
      clock_of_the_test_ns += 1'000'000'000;
    }
  };
  for (const auto& row : rows) {
    Session session = tiny_session({"run.steps=8"});
    std::vector<int64_t> saved;
    TrainOptions options;
    options.save_seconds = row.seconds, options.save_every = row.every;
    options.clock_ns = [] { return clock_of_the_test_ns; };
    options.save = [&](int64_t step) {
      saved.push_back(step);
      clock_of_the_test_ns += static_cast<int64_t>(1e9 * row.save_takes);
    };
    Stepper watcher;
    train(session, options, watcher);
    if (session.plan.device->id().kind == device::Kind::cpu || row.saved.size() < 3) {
      EXPECT_EQ(saved, row.saved) << row.seconds << " " << row.save_takes << " " << row.every;
    } else {
      EXPECT_GE(saved.size(), 2u) << row.seconds;  // a request is read one step late
    }
  }
}

TEST(Trainer, SkipsStepsThatAreNotFiniteWhenAsked) {
  LS_NEEDS_HOST_MEMORY();
  Session session = tiny_session({"run.steps=3", "run.nonfinite=skip"});
  session.parameters->named()[0].master.values.as<float>()[0] = std::numeric_limits<float>::infinity();
  const std::string before = session.parameters->hash();
  Watcher watcher;
  const Summary summary = train(session, {}, watcher);
  EXPECT_EQ(summary.skipped, 3);
  EXPECT_EQ(fmt::format("{} {}", watcher.steps[0].loss, watcher.steps[0].grad_norm), "nan nan");
  EXPECT_EQ(session.parameters->hash(), before);
}

TEST(Trainer, Fp16ScalerBacksOffAndRecovers) {
  Session session = tiny_session({"run.steps=30", "precision.compute=fp16", "precision.loss_scale=1e9"});
  Watcher watcher;
  const Summary summary = train(session, {}, watcher);
  EXPECT_GT(summary.skipped, 0);
  EXPECT_LT(summary.skipped, 25);
  EXPECT_LT(watcher.steps.back().loss_scale, 1e9f);
  EXPECT_LT(watcher.steps.back().loss, watcher.steps.front().loss);
}

// Nothing comes in, so that the loss is finite whatever the weights; on the way back every norm of nothing
// and every large weight makes the gradient larger.
TEST(Trainer, Fp16GradientsThatOverflowAtAnyScaleEndTheRun) {
  LS_NEEDS_HOST_MEMORY();
  Session session = tiny_session({"run.steps=100", "precision.compute=fp16", "precision.loss_scale=8",
                                  "model.family=llama", "model.tied=false", "model.init_std=10"});
  for (const Parameters::Named& param : session.parameters->named()) {
    float* values = param.master.values.as<float>();
    if (param.name.find("embed_tokens") != std::string::npos)
      std::fill(values, values + param.master.values.numel(), 0.0f);
  }
  session.parameters->refresh_compute();
  Watcher watcher;
  try {
    train(session, {}, watcher);
    FAIL() << "trained on";
  } catch (const base::RunError& error) {
    EXPECT_EQ(error.number(), 601) << error.what();
    EXPECT_NE(std::string(error.what()).find("even without a loss scale"), std::string::npos) << error.what();
  }
  ASSERT_EQ(watcher.steps.size(), 4u) << "scales 8, 4, 2 and 1";
  EXPECT_TRUE(std::isfinite(watcher.steps[0].loss));
}

TEST(AutoSlices, TakesTheLargestSliceThatFits) {
  if (test_device() != "cpu") GTEST_SKIP() << "the workspace of a GPU dwarfs a tiny model";
  const Plan roomy = make_plan(tiny_recipe({"batch.slices=auto", "batch.global=64"}), {});
  EXPECT_EQ(roomy.recipe().batch.slices.value, 1);
  // A twentieth of the memory stays free; beside it, as many slices as it takes.
  for (const auto& [filled, most_slices] : {std::pair(0.94, 1), {0.97, 2}, {2.0, 64}}) {
    SCOPED_TRACE(filled);
    const double limit = static_cast<double>(roomy.memory.peak_bytes()) / filled / (1 << 30);
    const Plan plan = make_plan(
        tiny_recipe({"batch.slices=auto", "batch.global=64", fmt::format("memory.limit_gib={:.9f}", limit)}),
        {});
    EXPECT_GE(plan.recipe().batch.slices.value, filled < 0.95 ? 1 : 2);
    EXPECT_LE(plan.recipe().batch.slices.value, most_slices);
    EXPECT_LE(plan.memory.peak_bytes(), plan.available_bytes);
  }
}

// Eight, or as many as there are slices, or the most below that divide them: the number is part of a run's
// bits.
TEST(AutoStrands, AreEightOrTheNextFewer) {
  const std::pair<int64_t, int64_t> rows[] = {{1, 1},  {4, 4},  {8, 8},  {16, 8},
                                              {48, 8}, {12, 6}, {10, 5}, {11, 1}};
  for (const auto& [slices, strands] : rows) {
    const Plan plan = make_plan(tiny_recipe({fmt::format("batch.global={}", slices),
                                             fmt::format("batch.slices={}", slices), "batch.strands=auto"}),
                                {});
    EXPECT_EQ(plan.recipe().batch.strands.value, strands) << slices;
  }
}

TEST(OutOfMemory, SaysWhatHoldsTheMemoryAndWhatWouldHelp) {
  try {
    make_plan(tiny_recipe({"memory.limit_gib=0.0001", "batch.strands=2"}), {});
    FAIL();
  } catch (const base::RunError& error) {
    const std::string text = error.what();
    for (const char* part : {"what takes up memory", "weights", "optimizer", "gradients",
                             "activations: layer 0", "nothing fits", "memory.recompute=", "batch.slices=8"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace lockstep::run
