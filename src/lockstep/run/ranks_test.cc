// The same bits on one rank and on many, in every way of sharing out. Ranks are threads here.
#include "lockstep/run/ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <exception>
#include <thread>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/run/snapshot.h"
#include "lockstep/run/testing.h"
#include "lockstep/run/trainer.h"

namespace lockstep::run {
namespace {

using Words = std::vector<std::string>;

struct Result {
  std::string hash;
  std::vector<double> losses;
  double eval_loss = 0;
  int64_t persistent_bytes = 0, peak_bytes = 0, planned_bytes = 0;
};

struct Watcher : Observer {
  Result* result;
  void stepped(const StepReport& report) override { result->losses.push_back(report.loss); }
};

// Trains as `rank` of `world`; every rank's result must agree.
Result train_rank(const Words& words, comm::World& world, int64_t steps) {
  Words all = words;
  all.push_back(fmt::format("run.steps={}", steps));
  Ranks ranks(world);
  Plan plan = make_plan(tiny_recipe(all), {}, {.seat = world.seat(), .shares_memory = ranks.shares_memory()});
  Result result;
  result.planned_bytes = plan.memory.peak_bytes();
  Session session(std::move(plan), &ranks);
  result.persistent_bytes = session.memory->plan().persistent_bytes;
  Watcher watcher;
  watcher.result = &result;
  const Summary summary = train(session, {}, watcher);
  result.hash = summary.params_hash;
  result.eval_loss = summary.eval_loss.value_or(0);
  result.peak_bytes = session.plan.device->peak_allocated_bytes();
  return result;
}

std::vector<Result> train_on(int world, const Words& words, int64_t steps, const std::string& engine = "shm") {
  const std::unique_ptr<comm::Store> store = comm::make_local_store();
  std::vector<Result> results(static_cast<size_t>(world));
  std::vector<std::exception_ptr> errors(results.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r, clone = std::shared_ptr<comm::Store>(store->clone())]() mutable {
      try {
        comm::WorldOptions options;
        options.seat = {.rank = r, .world = world, .local_rank = r, .local_world = world};
        options.engine = engine;
        options.timeout = options.join_timeout = std::chrono::seconds(60);
        comm::World one(options, clone->clone());
        results[static_cast<size_t>(r)] = train_rank(words, one, steps);
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

Result train_alone(const Words& words, int64_t steps) {
  comm::World world;
  return train_rank(words, world, steps);
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Row {
  const char* name;
  Words recipe;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class SameBitsOnRanks : public testing::TestWithParam<Row> {};

TEST_P(SameBitsOnRanks, InEveryLayout) {
  LS_NEEDS_HOST_MEMORY();
  const int64_t steps = 4;
  const Result one = train_alone(GetParam().recipe, steps);
  struct Layout {
    int world;
    Words words;
  };
  std::vector<Layout> layouts;
  for (const int world : {2, 3, 4, 6, 8}) {
    for (const char* zero : {"0", "1", "2", "3"}) layouts.push_back({world, {std::string("parallel.zero=") + zero}});
  }
  for (const char* zero : {"1", "2", "3"}) {
    layouts.push_back({4, {std::string("parallel.zero=") + zero, "parallel.shard=2"}});
    layouts.push_back({6, {std::string("parallel.zero=") + zero, "parallel.shard=2"}});
    layouts.push_back({6, {std::string("parallel.zero=") + zero, "parallel.shard=3"}});
  }
  for (const Layout& layout : layouts) {
    std::string trace = fmt::format("{} ranks", layout.world);
    for (const std::string& word : layout.words) trace += " " + word;
    SCOPED_TRACE(trace);
    for (const Result& many : train_on(layout.world, with(GetParam().recipe, layout.words), steps)) {
      ASSERT_EQ(many.hash, one.hash);
      ASSERT_EQ(many.losses, one.losses);
      ASSERT_EQ(many.eval_loss, one.eval_loss);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, SameBitsOnRanks,
    testing::Values(Row{"gpt2_tied", {"batch.global=8", "batch.slices=8", "batch.strands=8"}},
                    Row{"gpt2_untied_two_slices_a_strand", {"model.tied=false", "batch.global=16", "batch.slices=16", "batch.strands=8"}},
                    Row{"gpt2_bf16_dropout_recompute",
                        {"precision.compute=bf16", "model.dropout=0.1", "memory.recompute=full", "batch.global=16", "batch.slices=8",
                         "batch.strands=8"}},
                    Row{"llama_fp16", {"model.family=llama", "precision.compute=fp16", "batch.global=24", "batch.slices=24", "batch.strands=8"}},
                    Row{"mlp_lion", {"model.family=mlp", "optim.name=lion", "batch.global=8", "batch.slices=8", "batch.strands=8"}}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace lockstep::run
