// train() as a program calls it: in this process, on a tiny recipe, with a folder of its own.
#include "lockstep/train.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/model/families/family.h"

namespace lockstep {
namespace {

using Ended = TrainResult::Ended;

recipe::Resolved tiny(std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"run.device=cpu",  "run.threads=1",      "run.steps=6",
                                    "model.layers=1",  "model.hidden=16",    "model.heads=2",
                                    "data.seq_len=8",  "batch.global=4",     "batch.slices=2",
                                    "batch.strands=2", "log.eval_batches=1", "optim.warmup=0"};
  words.insert(words.end(), more.begin(), more.end());
  return recipe::read_recipe({.overrides = words});
}

// Notes what it is told; asks the run to stop behind one of its steps.
struct Watcher : TrainObserver {
  int64_t stop_after = -1, first_step = -1, steps = 0;
  std::vector<std::string> events, remarks, warnings, notes;
  int ends = 0;
  void planned(const Planned& planned) override { first_step = planned.first_step; }
  void stepped(const run::StepReport& report) override {
    ++steps;
    if (report.step == stop_after) ::raise(SIGTERM);
  }
  void event(const std::string& name, const std::string&, int64_t) override { events.push_back(name); }
  void ended(const TrainResult&) override { ++ends; }
  void remark(const std::string& line) override { remarks.push_back(line); }
  void warn(const std::string& line) override { warnings.push_back(line); }
  void note(const std::string& line) override { notes.push_back(line); }
};

size_t lines_in(const std::string& path) { return base::split_lines(base::read_file(path)).size(); }

TEST(LibraryTrain, KeepsARunFolderAndSaysHowItEnded) {
  const base::TemporaryFolder folder;
  const std::string run = folder.path() + "/run";
  Watcher watcher;
  const TrainResult done = train(tiny(), {.observer = &watcher, .folder = run});
  EXPECT_EQ(done.ended, Ended::trained);
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_TRUE(done.first && done.finished);
  EXPECT_EQ(done.steps, 6);
  EXPECT_EQ(done.folder, run);
  EXPECT_GT(done.loss.value_or(0), 0);
  EXPECT_EQ(watcher.first_step, 0);
  EXPECT_EQ(watcher.steps, 6);
  EXPECT_EQ(watcher.ends, 1);
  EXPECT_EQ(watcher.events,
            (std::vector<std::string>{"start", "first_step", "checkpoint_saved", "finished"}));
  EXPECT_EQ(lines_in(run + "/events.jsonl"), 4u);
  EXPECT_EQ(lines_in(run + "/metrics.jsonl"), 7u) << "six steps and the last evaluation";
  EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints/step-00000006/manifest.json"));

  Watcher again;
  const TrainResult known = train(tiny(), {.observer = &again, .folder = run});
  EXPECT_EQ(known.ended, Ended::already_done);
  EXPECT_EQ(known.exit_code, 0);
  EXPECT_EQ(known.params_hash, done.params_hash);
  EXPECT_EQ(known.loss.has_value(), true);
  EXPECT_EQ(again.steps, 0);
  ASSERT_EQ(again.remarks.size(), 1u);
  EXPECT_NE(again.remarks[0].find("already done"), std::string::npos);
  // Another recipe is not mixed into the run; a fresh start is.
  EXPECT_NE(base::refusal(160, [&] { train(tiny({"optim.lr=0.5"}), {.observer = &again, .folder = run}); })
                .find("optim.lr"),
            std::string::npos);
  EXPECT_EQ(train(tiny({"optim.lr=0.5"}), {.observer = &again, .folder = run, .resume = "never"}).steps, 6);
}

TEST(LibraryTrain, AskedToStopItSavesAndGoesOnToTheSameBits) {
  const base::TemporaryFolder folder;
  const std::string expected = train(tiny(), {.folder = folder.path() + "/whole"}).params_hash;
  Watcher watcher;
  watcher.stop_after = 2;
  const TrainOptions options{.observer = &watcher, .folder = folder.path() + "/stopped"};
  const TrainResult stopped = train(tiny(), options);
  EXPECT_EQ(stopped.exit_code, 75);
  EXPECT_FALSE(stopped.finished);
  EXPECT_EQ(stopped.steps, 2);
  EXPECT_EQ(watcher.events.back(), "preempted");
  EXPECT_TRUE(std::filesystem::exists(stopped.folder + "/forecast.json"));  // for `lockstep receipt`
  const TrainResult done = train(tiny(), options);
  EXPECT_EQ(watcher.first_step, 2);
  EXPECT_EQ(watcher.notes, std::vector<std::string>{"resuming from step 2"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.params_hash, expected);
  // And from a checkpoint that is named, in another folder.
  const TrainResult from = train(
      tiny(), {.folder = folder.path() + "/from", .resume = stopped.folder + "/checkpoints/step-00000002"});
  EXPECT_EQ(from.params_hash, expected);
}

// Counts: its samples are its own, and it is opened once.
class Counting final : public data::Dataset {
 public:
  int64_t vocab() const override { return 16; }
  int64_t samples(data::Split split) const override { return split == data::Split::train ? 64 : 8; }
  void read(data::Split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = static_cast<int32_t>((index + static_cast<int64_t>(i)) % 16);
      labels[i] = (inputs[i] + 1) % 16;
    }
  }
  std::string describe() const override { return "counting"; }
  uint64_t content_hash() const override { return 7; }
};

TEST(LibraryTrain, TakesAProgramsOwnDataAndModel) {
  const base::TemporaryFolder folder;
  int opened = 0, built = 0;
  TrainOptions options{.folder = folder.path() + "/run"};
  options.data = DataSource::Open([&](const recipe::Recipe& recipe) {
    ++opened;
    EXPECT_EQ(recipe.data.seq_len, 8);
    return std::make_shared<Counting>();
  });
  options.model = [&](const recipe::Recipe& recipe, device::DType type) {
    ++built;
    recipe::Resolved sized =
        recipe::read_recipe({.overrides = {"model.layers=1", "model.hidden=32", "model.heads=2",
                                           "data.seq_len=8", "memory.logits_chunk=64"}});
    EXPECT_EQ(recipe.batch.global, 4);
    model::resolve_model(sized, 16);
    model::Model model = model::build_model(sized.recipe, type);
    model.family = "own";
    return model;
  };
  const TrainResult done = train(tiny({"run.steps=30", "optim.lr=0.02"}), options);
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(built, 1);
  EXPECT_LT(done.summary.last_loss, 1.5) << "counting is easy";
  const auto record = nlohmann::json::parse(base::read_file(done.folder + "/record.json"));
  EXPECT_EQ(record["dataset"], "counting");
  // The same data as an object instead of a function gives the same run.
  options.data = std::make_shared<Counting>();
  options.folder = folder.path() + "/again";
  EXPECT_EQ(train(tiny({"run.steps=30", "optim.lr=0.02"}), options).params_hash, done.params_hash);
}

TEST(LibraryTrain, ADryRunWritesNothing) {
  const base::TemporaryFolder folder;
  Watcher watcher;
  const TrainResult result =
      train(tiny(), {.observer = &watcher, .folder = folder.path() + "/run", .dry_run = true});
  EXPECT_EQ(result.ended, Ended::rehearsed);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(watcher.first_step, 0);
  EXPECT_EQ(watcher.steps, 0);
  ASSERT_EQ(watcher.notes.size(), 1u);
  EXPECT_NE(watcher.notes[0].find("would start at step 1"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/run"));
}

TEST(LibraryTrain, WhatIsThrownBecomesASentenceAndAnExitCode) {
  const base::TemporaryFolder folder;
  std::vector<std::string> said;
  const auto code_of = [&](const std::function<int()>& body) {
    return run_main(body, [&](const std::string& sentence) { said.push_back(sentence); });
  };
  EXPECT_EQ(code_of([] { return 75; }), 75);
  EXPECT_TRUE(said.empty());
  EXPECT_EQ(code_of([&] {
              return train(tiny(), {.folder = folder.path() + "/run", .resume = "nowhere"}).exit_code;
            }),
            3);
  EXPECT_EQ(code_of([]() -> int { throw base::ConfigError(109, "no"); }), 2);
  EXPECT_EQ(code_of([]() -> int { throw std::bad_alloc(); }), 1);
  ASSERT_EQ(said.size(), 3u);
  EXPECT_NE(said[0].find("no such checkpoint folder"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
