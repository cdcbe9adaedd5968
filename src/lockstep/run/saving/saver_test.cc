// Saves beside the training: what they cost it, what happens when they fail, and that a run goes on from
// them.
#include "lockstep/run/saving/saver.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct Losses : Observer {
  std::vector<double> all;
  std::vector<std::string> hashes;
  void stepped(const StepReport& report) override {
    all.push_back(report.loss);
    hashes.push_back(report.params_hash);
  }
};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A checkpoint made while training goes on holds the state of its step, whatever came after.
TEST(Saver, SavesInTheBackgroundWhatWasThereAtTheStep) {
  const base::TemporaryFolder run;
  const Words words = {"run.steps=6", "checkpoint.keep=9", "log.fingerprint=true"};
  Session session = tiny_session(words);
  Losses losses;
  TrainOptions options;
  options.save_every = 1;
  {
    Saver saver(session, run.path());
    options.save = [&](int64_t step) { saver.save(step); };
    train(session, options, losses);
    saver.finish();
    for (int64_t step = 1; step <= 6; ++step) {
      const auto saved = saver.poll();
      ASSERT_TRUE(saved);
      EXPECT_EQ(saved->outcome.step, step);
      EXPECT_EQ(saved->outcome.error, 0) << saved->outcome.why;
      EXPECT_GE(saved->pause_ms, 0);
    }
    EXPECT_FALSE(saver.poll());
  }
  for (int64_t step = 1; step <= 6; ++step) {
    const std::string folder = fmt::format("{}/checkpoints/step-{:08d}", run.path(), step);
    EXPECT_EQ(checkpoint::Opened(folder).manifest()->params_hash,
              losses.hashes[static_cast<size_t>(step - 1)]);
    Session loaded = tiny_session(words);
    EXPECT_EQ(load_checkpoint(loaded, folder), step);
    EXPECT_EQ(loaded.parameters->hash(), losses.hashes[static_cast<size_t>(step - 1)]);
  }
}

// checkpoint.async = false: training goes on when the checkpoint is on the disk.
TEST(Saver, WaitsForTheDiskWhereTheRecipeSaysSo) {
  const base::TemporaryFolder run;
  Session session = tiny_session({"checkpoint.async=false"});
  Saver saver(session, run.path());
  for (const int64_t step : {1, 2}) {
    saver.save(step);
    EXPECT_TRUE(saver.poll().has_value()) << step;
    EXPECT_EQ(checkpoint::list(run.path()).size(), static_cast<size_t>(step));
  }
}

// checkpoint.keep and checkpoint.keep_every reach the disk.
TEST(Saver, KeepsWhatTheRecipeSays) {
  const base::TemporaryFolder run;
  Session session = tiny_session({"run.steps=7", "checkpoint.keep=2", "checkpoint.keep_every=3"});
  TrainOptions options;
  options.save_every = 1;
  Saver saver(session, run.path());
  options.save = [&](int64_t step) { saver.save(step); };
  Losses losses;
  train(session, options, losses);
  saver.finish();
  std::vector<int64_t> steps;
  for (const std::string& folder : checkpoint::list(run.path()))
    steps.push_back(checkpoint::Opened(folder).manifest()->step);
  EXPECT_EQ(steps, (std::vector<int64_t>{7, 6, 3}));
}

// A save that cannot be made is told, changes nothing, and the next one works.
TEST(Saver, AFailureIsToldAndTheNextSaveTriesAgain) {
  LS_NEEDS_HOST_MEMORY();
  const base::TemporaryFolder run;
  on_ranks(2, "shm", [&](comm::World& world) {
    Ranks ranks(world);
    const Words words = {"batch.global=8", "batch.slices=8", "batch.strands=8", "parallel.zero=3"};
    Session session(make_plan(tiny_recipe(words), {}, for_this(ranks)), &ranks);
    Saver saver(session, run.path());
    saver.save(1);
    saver.finish();
    ranks.host().barrier();
    const std::string blocked = run.path() + "/checkpoints/step-00000002";
    if (world.first()) {  // a file where the folder should be, and nobody may remove it
      run.write("checkpoints/keep", "");
      fs::remove_all(blocked);
      fs::rename(run.path() + "/checkpoints", run.path() + "/aside");
      run.write("checkpoints", "no folder");
    }
    ranks.host().barrier();
    saver.save(2);
    EXPECT_THROW(saver.finish(), base::IoError);
    ranks.host().barrier();
    if (world.first()) {
      fs::remove(run.path() + "/checkpoints");
      fs::rename(run.path() + "/aside", run.path() + "/checkpoints");
      EXPECT_EQ(checkpoint::list(run.path()).size(), 1u);
    }
    ranks.host().barrier();
    saver.save(3);
    saver.finish();
    for (const int error : {0, 1, 0}) {
      const auto saved = saver.poll();
      ASSERT_TRUE(saved);
      EXPECT_EQ(saved->outcome.error != 0, error != 0) << saved->outcome.why;
    }
  });
  EXPECT_EQ(checkpoint::list(run.path()).size(), 2u);
}

// What is shared out and what is cut have their copies on different ranks, often as many: every element is
// written once.
void check_shares(const Words& recipe) {
  const std::string first = tiny_session(recipe).parameters->hash();
  for (const std::string zero : {"0", "1", "2", "3"}) {
    for (const Words& cut : {Words{"parallel.tensor=2"}, Words{"parallel.tensor=2", "parallel.context=2"},
                             Words{"parallel.tensor=2", "precision.compute=bf16"}}) {
      SCOPED_TRACE(fmt::format("zero {}, {}", zero, fmt::join(cut, " ")));
      const base::TemporaryFolder run;
      on_ranks(cut.back() == "parallel.context=2" ? 8 : 4, "shm", [&](comm::World& world) {
        Ranks ranks(world);
        const Words words = with(with(recipe, cut), {"parallel.zero=" + zero});
        Session session(make_plan(tiny_recipe(words), {}, for_this(ranks)), &ranks);
        save_checkpoint(session, run.path(), 1);
      });
      Session loaded = tiny_session(recipe);
      EXPECT_EQ(load_checkpoint(loaded, run.path() + "/checkpoints/step-00000001"), 1);
      EXPECT_EQ(loaded.parameters->hash(), first);
    }
  }
}

TEST(Saver, TensorAndContextRanksThatShareOut) {
  LS_NEEDS_HOST_MEMORY();
  // A vocabulary that the ranks do not divide is padded in memory and nowhere else; the second is of several
  // chunks.
  for (const Words& sizes : {Words{}, Words{"model.vocab=139"}, Words{"model.vocab=3001", "model.hidden=64"}})
    check_shares(with({"batch.global=8", "batch.slices=8", "batch.strands=8"}, sizes));
}

struct Row {
  const char* name;
  Words recipe;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

// Stopped at any step on any layout and resumed on any other: the losses and the hash of a run that never
// stopped.
class ExactResume : public testing::TestWithParam<Row> {};

TEST_P(ExactResume, OnOtherRanksAndStages) {
  LS_NEEDS_HOST_MEMORY();
  constexpr int64_t kSteps = 6;
  const Words recipe = with(GetParam().recipe, {fmt::format("run.steps={}", kSteps), "checkpoint.keep=9"});
  struct Layout {
    int world;
    Words words;
  };
  const Layout layouts[] = {{1, {}},
                            {2, {"parallel.zero=0"}},
                            {2, {"parallel.zero=3"}},
                            {3, {"parallel.zero=2"}},
                            {4, {"parallel.zero=1", "parallel.shard=2"}}};
  Losses whole;
  std::string expected;
  {
    Session session = tiny_session(recipe);
    expected = train(session, {}, whole).params_hash;
  }
  for (const Layout& saves : layouts) {
    const base::TemporaryFolder run;
    on_ranks(saves.world, "shm", [&](comm::World& world) {
      Ranks ranks(world);
      Session session(make_plan(tiny_recipe(with(recipe, saves.words)), {}, for_this(ranks)), &ranks);
      Saver saver(session, run.path());
      TrainOptions options;
      options.save_every = 1;
      options.save = [&](int64_t step) { saver.save(step); };
      Observer nobody;
      train(session, options, nobody);
      saver.finish();
    });
    int64_t step = 1;
    for (const Layout& loads : layouts) {
      SCOPED_TRACE(fmt::format("{} ranks to {} at step {}", saves.world, loads.world, step));
      const std::string folder = fmt::format("{}/checkpoints/step-{:08d}", run.path(), step);
      on_ranks(loads.world, "shm", [&](comm::World& world) {
        Ranks ranks(world);
        Session session(make_plan(tiny_recipe(with(recipe, loads.words)), {}, for_this(ranks)), &ranks);
        TrainOptions options;
        options.first_step = load_checkpoint(session, folder);
        Losses rest;
        EXPECT_EQ(train(session, options, rest).params_hash, expected);
        EXPECT_EQ(rest.all, std::vector<double>(whole.all.begin() + step, whole.all.end()));
      });
      ++step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, ExactResume,
                         testing::Values(Row{"gpt2_bf16_dropout",
                                             {"precision.compute=bf16", "model.dropout=0.1", "batch.global=8",
                                              "batch.slices=8", "batch.strands=8"}},
                                         Row{"llama_fp16_loss_scale",
                                             {"model.family=llama", "precision.compute=fp16",
                                              "precision.growth_interval=2", "batch.global=8",
                                              "batch.slices=8", "batch.strands=8"}},
                                         Row{"gpt2_untied_of_several_chunks",
                                             {"model.tied=false", "model.hidden=64", "model.vocab=3000",
                                              "batch.global=8", "batch.slices=8", "batch.strands=8"}},
                                         Row{"mlp_lion",
                                             {"model.family=mlp", "optim.name=lion", "batch.global=8",
                                              "batch.slices=8", "batch.strands=8"}}),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace lockstep::run
