#include "lockstep/run/session/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/grammar/grammar.h"
#include "lockstep/plan/catalogue/published.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

Forecast of(const std::string& place, std::vector<std::string> words) {
  words.push_back("data.kind=tokens");
  return forecast(recipe::read_recipe({.file = "", .overrides = std::move(words)}), plan::parse_place(place));
}

// Steps that were measured on one H200 (docs/measurements.md): milliseconds and GiB. None of them was used to
// set the rates, which come from single kernels.
TEST(Forecast, StepsOfAnH200) {
  struct Row {
    std::vector<std::string> words;
    double ms, gib;
  };
  for (const Row& row : std::vector<Row>{
           {{"model.family=gpt2", "model.preset=124m", "data.seq_len=1024", "batch.global=32"}, 54.2, 11.7},
           {{"model.family=llama", "model.preset=1b", "data.seq_len=2048", "batch.global=8"}, 235, 30.9},
           {{"model.family=llama", "model.preset=1b", "data.seq_len=2048", "batch.global=8",
             "memory.recompute=none"},
            234.6,
            36.9},
           {{"model.family=llama", "model.preset=1b", "data.seq_len=2048", "batch.global=8",
             "precision.compute=fp8"},
            179.3,
            35.5},
           {{"model.family=llama", "model.preset=3b", "data.seq_len=4096", "batch.global=4"}, 644, 71.0},
           {{"model.family=llama", "model.preset=1b", "model.context=32768", "data.seq_len=32768",
             "batch.global=1"},
            878.4,
            43.7},
           {{"model.family=llama", "model.preset=8b", "data.seq_len=4096", "batch.global=1",
             "optim.moments=bf16"},
            386.7,
            104.9}}) {
    std::vector<std::string> words = row.words;
    words.insert(words.end(), {"batch.slices=1", "batch.strands=1"});
    const Forecast f = of("H200", words);
    EXPECT_NEAR(f.step_seconds * 1e3 / row.ms, 1, 0.09) << row.words[1] << " " << row.words[2];
    EXPECT_NEAR(static_cast<double>(f.peak_bytes) / (1 << 30) / row.gib, 1, 0.01) << row.words[1];
  }
}

TEST(Forecast, PartsAddUp) {
  for (const char* layout :
       {"parallel.zero=3", "parallel.tensor=2", "parallel.pipeline=2", "parallel.context=2"}) {
    const Forecast f = of("8xA100", {"model.family=llama", "model.preset=1b", "data.seq_len=2048",
                                     "batch.global=32", "batch.slices=32", "batch.strands=8", layout});
    const double parts = std::accumulate(f.parts.begin(), f.parts.end(), 0.0,
                                         [](double sum, const plan::TimePart& p) { return sum + p.seconds; });
    EXPECT_NEAR(parts / f.step_seconds, 1, 1e-6) << layout;
    const double verbs = std::accumulate(f.verbs.begin(), f.verbs.end(), 0.0,
                                         [](double sum, const plan::TimePart& p) { return sum + p.seconds; });
    EXPECT_NEAR(verbs / f.step_seconds, 1, 1e-6) << layout;
    ASSERT_EQ(f.stage_bytes.size(), std::string(layout) == "parallel.pipeline=2" ? 2u : 1u) << layout;
    EXPECT_EQ(*std::max_element(f.stage_bytes.begin(), f.stage_bytes.end()), f.peak_bytes) << layout;
    const int64_t bytes =
        std::accumulate(f.memory.begin(), f.memory.end(), int64_t{0},
                        [](int64_t sum, const plan::MemoryPart& p) { return sum + p.bytes; });
    EXPECT_NEAR(static_cast<double>(bytes) / static_cast<double>(f.peak_bytes), 1, 0.02) << layout;
    EXPECT_TRUE(f.fits()) << layout;
    EXPECT_GT(f.mfu, 0.05) << layout;
    EXPECT_LT(f.mfu, 0.8) << layout;
  }
}

TEST(Forecast, MoreOrFasterDevicesTakeLessTime) {
  const std::vector<std::string> words{"model.family=llama", "model.preset=1b", "data.seq_len=2048",
                                       "batch.global=64",    "batch.slices=64", "batch.strands=64"};
  const double one = of("A100", words).step_seconds, eight = of("8xA100", words).step_seconds;
  EXPECT_GT(one / eight, 7);
  EXPECT_LE(one / eight, 8.1);
  EXPECT_LT(of("H100", words).step_seconds, one / 1.8);
  // A slow network shows, and nothing fits into too little memory.
  EXPECT_GT(of("a2-highgpu-8g x 4", words).step_seconds, of("32xA100-40GB", words).step_seconds);
  EXPECT_FALSE(
      of("T4", {"model.family=llama", "model.preset=8b", "data.seq_len=2048", "batch.global=1"}).fits());
}

// Evaluations are forward alone, a slice at a time, and data ranks take turns; saves come by steps or by
// minutes.
TEST(Forecast, HoursHaveEvaluationsAndSaves) {
  const std::vector<std::string> words{"model.family=llama", "model.preset=1b",    "data.seq_len=2048",
                                       "batch.global=32",    "batch.slices=32",    "batch.strands=32",
                                       "run.steps=1000",     "log.eval_every=100", "log.eval_batches=32",
                                       "checkpoint.every=50"};
  const Forecast f = of("A100", words);
  EXPECT_EQ(f.evaluations, 10);
  EXPECT_EQ(f.saves(), 20);
  // As many slices as a step has, without the backward pass.
  EXPECT_NEAR(f.evaluation_seconds / f.step_seconds, 1.0 / 3, 0.06);
  EXPECT_NEAR(f.hours * 3600, 1000 * f.step_seconds + 10 * f.evaluation_seconds + 20 * f.save_seconds,
              1e-6 * f.hours * 3600);
  EXPECT_NEAR(of("8xA100", words).evaluation_seconds / f.evaluation_seconds, 1.0 / 8, 0.01);
  std::vector<std::string> by_time = words;
  by_time.back() = "checkpoint.minutes=10";
  const Forecast timed = of("A100", by_time);
  EXPECT_EQ(timed.saves(), 1 + std::floor(999 * timed.step_seconds / 600));
  // Where nothing is held out, nothing is evaluated; the grammar has words of its own for it.
  std::vector<std::string> none = words;
  none.push_back("data.eval_fraction=0");
  EXPECT_EQ(of("A100", none).evaluations, 0);
  EXPECT_EQ(of("A100", none).evaluation_seconds, 0);
  EXPECT_NEAR(of("A100", none).hours * 3600, 1000 * f.step_seconds + 20 * f.save_seconds,
              1e-6 * f.hours * 3600);
  none.push_back("data.eval_path=held.bin");
  EXPECT_EQ(of("A100", none).evaluations, 10);
  const recipe::Resolved grammar =
      recipe::read_recipe({.file = "", .overrides = {"data.kind=grammar", "batch.global=8"}});
  EXPECT_GT(forecast(grammar, plan::parse_place("A100")).evaluations, 0);
}

// Where the data is here, no more slices are evaluated than it holds out.
TEST(Forecast, EvaluatesNoMoreThanThereIs) {
  const auto seconds = [](int64_t batches) {
    const Plan plan =
        make_plan(tiny_recipe({"run.device=cpu", "batch.global=64", "batch.slices=1", "batch.strands=1",
                               "log.eval_batches=" + std::to_string(batches)}),
                  {}, {.must_fit = false});
    return forecast_here(plan, {plan::machine_named("laptop")}).evaluation_seconds;
  };
  constexpr int64_t kSlices = data::Grammar::kEvalSamples / 64;
  EXPECT_GT(seconds(kSlices), seconds(kSlices / 2));
  EXPECT_DOUBLE_EQ(seconds(5 * kSlices), seconds(kSlices));
}

// As the trainer counts them: at every so many steps before the last one, and at the end.
TEST(Forecast, SavesAreCountedInSteps) {
  struct Row {
    int64_t steps, every;
    double saves;
  };
  for (const Row& row : std::vector<Row>{{0, 50, 1}, {1, 1, 1}, {50, 50, 1}, {51, 50, 2}, {1000, 7, 143}}) {
    for (const double seconds : {0.0, 1e-9, 0.1, 0.3, 1e6}) {  // however long a step is
      Forecast f{.save_steps = row.every, .steps = row.steps};
      f.take_step(seconds);
      EXPECT_EQ(f.saves(), row.saves) << row.steps << " " << row.every << " " << seconds;
    }
  }
  Forecast f{.save_minutes = 1, .steps = 0};
  f.take_step(1e3);
  EXPECT_EQ(f.saves(), 1);
}

// What is advised against too much state is not what the recipe has already.
TEST(Forecast, AdviceAgainstTooMuchState) {
  struct Row {
    const char* place;
    std::vector<std::string> words;
    bool moments, offload;
  };
  for (const Row& row : std::vector<Row>{{"2xA100", {}, true, true},
                                         {"2xlaptop", {}, true, false},  // moments are in the host's memory
                                         {"2xA100", {"optim.moments=bf16"}, false, true},
                                         {"2xA100", {"optim.offload=true"}, false, false}}) {
    std::vector<std::string> words{"data.kind=tokens",    "model.family=llama", "model.preset=1b",
                                   "batch.global=8",      "batch.slices=8",     "batch.strands=8",
                                   "memory.limit_gib=0.5"};
    words.insert(words.end(), row.words.begin(), row.words.end());
    const recipe::Resolved resolved = recipe::read_recipe({.file = "", .overrides = words});
    try {
      layouts_on(resolved, plan::parse_place(row.place), false);
      ADD_FAILURE();
    } catch (const base::ConfigError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("needs at least"), std::string::npos) << text;
      EXPECT_NE(text.find("use more ranks"), std::string::npos) << text;
      EXPECT_EQ(text.find("optim.moments=bf16") != std::string::npos, row.moments) << text;
      EXPECT_EQ(text.find("optim.offload=true") != std::string::npos, row.offload) << text;
    }
  }
}

// Who writes "auto" out has settled nothing: state is shared out over all data ranks.
TEST(Forecast, ShardAutoIsAllDataRanks) {
  std::vector<std::string> words{"data.kind=tokens",     "model.family=llama",  "model.preset=1b",
                                 "model.layers=4",       "data.seq_len=512",    "batch.global=8",
                                 "batch.slices=8",       "batch.strands=8",     "parallel.tensor=1",
                                 "parallel.context=1",   "parallel.pipeline=1", "memory.limit_gib=4",
                                 "memory.recompute=full"};
  const auto best = [&] {
    const recipe::Resolved resolved = recipe::read_recipe({.file = "", .overrides = words});
    return layouts_on(resolved, plan::parse_place("8xA100"), false).best.words();
  };
  const std::string free = best();
  words.push_back("parallel.shard=auto");
  EXPECT_EQ(best(), free);
}

// Programs that were compiled for one machine serve the next: the same forecasts and layouts as alone.
TEST(Forecast, IsTheSameWithWhatOthersHaveCompiled) {
  const recipe::Resolved resolved = recipe::read_recipe(
      {.file = "",
       .overrides = {"data.kind=tokens", "model.family=llama", "model.preset=1b", "data.seq_len=2048",
                     "batch.global=32", "batch.slices=16", "batch.strands=8", "memory.recompute=up"}});
  Known known;
  for (const char* words : {"8xH100", "8xA100", "a2-highgpu-8g x 2", "8xH100", "4xT4", "8xL4"}) {
    SCOPED_TRACE(words);
    const plan::Place place = plan::parse_place(words);
    const auto of_layout = [&](Known* shared) {
      recipe::Resolved mine = resolved;
      take_layout(mine, simple_layout(mine, place, shared));
      return forecast(mine, place, shared);
    };
    const Forecast alone = of_layout(nullptr), shared = of_layout(&known);
    EXPECT_EQ(alone.layout, shared.layout);
    EXPECT_DOUBLE_EQ(alone.step_seconds, shared.step_seconds);
    EXPECT_EQ(alone.peak_bytes, shared.peak_bytes);
    EXPECT_EQ(alone.available_bytes, shared.available_bytes);
    EXPECT_DOUBLE_EQ(alone.mfu, shared.mfu);
    EXPECT_DOUBLE_EQ(alone.hours, shared.hours);
  }
}

// fp32 has products as TF32 where the recipe allows it, and attention without tensor cores: the receipt of a
// GPT-2 124M on one H200 (docs/plan.md). Attention's share is from this very run; the rest is not.
TEST(Forecast, Fp32OnAnH200) {
  const std::vector<std::string> words{"model.family=gpt2", "model.preset=124m", "data.seq_len=1024",
                                       "batch.global=16",   "batch.slices=2",    "precision.compute=fp32"};
  const Forecast f = of("H200", words);
  EXPECT_NEAR(f.step_seconds * 1e3 / 141.8, 1, 0.1);
  EXPECT_GT(f.part("attention"), f.part("products"));
  std::vector<std::string> exact = words;
  exact.push_back("precision.tf32=false");
  EXPECT_GT(of("H200", exact).part("products"), 4 * f.part("products"));
}

// Figures that others have published. No row is fitted by itself; docs/plan.md has the table.
TEST(Forecast, PublishedFigures) {
  std::vector<double> errors;
  for (const plan::PublishedRow& row : plan::published().rows) {
    const Forecast f = forecast(recipe::read_recipe({.file = "", .overrides = row.keys}), row.place);
    const double error = f.units_per_second() / row.place.ranks / row.tokens_per_second - 1;
    EXPECT_LT(std::abs(error), 0.30) << row.title << " on " << row.place.words << ": " << error;
    errors.push_back(std::abs(error));
  }
  ASSERT_GT(errors.size(), 20u);
  std::nth_element(errors.begin(), errors.begin() + static_cast<ptrdiff_t>(errors.size() / 2), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.065);
}

}  // namespace
}  // namespace lockstep::run
