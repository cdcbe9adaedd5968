// The same bits on one rank and on many, in every way of sharing out. Ranks are threads here.
#include "lockstep/run/executor/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Words = std::vector<std::string>;

struct Result {
  std::string hash;
  std::vector<double> losses;
  double eval_loss = 0;
  int64_t persistent_bytes = 0, peak_bytes = 0, planned_bytes = 0;
  plan::Traffic planned, sent;  // in one step
};

struct Watcher : Observer {
  Result* result;
  const Ranks* ranks;
  void stepped(const StepReport& report) override {
    result->losses.push_back(report.loss);
    const plan::Traffic now = ranks->sent();
    result->sent = {now.inside - before.inside, now.across - before.across};
    before = now;
  }
  plan::Traffic before;
};

// Trains as `rank` of `world`; every rank's result must agree.
Result train_rank(const Words& words, comm::World& world, int64_t steps) {
  Words all = words;
  all.push_back(fmt::format("run.steps={}", steps));
  Ranks ranks(world);
  Plan plan = make_plan(tiny_recipe(all), {}, for_this(ranks));
  Result result;
  result.planned_bytes = plan.memory.peak_bytes();
  result.planned = traffic_of(plan);
  Session session(std::move(plan), &ranks);
  result.persistent_bytes = session.memory->plan().persistent_bytes;
  Watcher watcher;
  watcher.result = &result;
  watcher.ranks = &ranks;
  const Summary summary = train(session, {}, watcher);
  result.hash = summary.params_hash;
  result.eval_loss = summary.eval_loss.value_or(0);
  result.peak_bytes = session.plan.device->peak_allocated_bytes();
  return result;
}

std::vector<Result> train_on(int world, const Words& words, int64_t steps, const std::string& engine = "shm",
                             int per_node = 0) {
  std::vector<Result> results(static_cast<size_t>(world));
  on_ranks(
      world, engine,
      [&](comm::World& one) { results[static_cast<size_t>(one.rank())] = train_rank(words, one, steps); },
      per_node);
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
  const int64_t steps = std::getenv("LOCKSTEP_LONG") != nullptr ? 20 : 4;
  const Result one = train_alone(GetParam().recipe, steps);
  struct Layout {
    int world;
    Words words;
  };
  std::vector<Layout> layouts;
  for (const int world : {2, 3, 4, 6, 8}) {
    for (const char* zero : {"0", "1", "2", "3"})
      layouts.push_back({world, {std::string("parallel.zero=") + zero}});
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
                    Row{"gpt2_untied_two_slices_a_strand",
                        {"model.tied=false", "batch.global=16", "batch.slices=16", "batch.strands=8"}},
                    Row{"gpt2_bf16_dropout_recompute",
                        {"precision.compute=bf16", "model.dropout=0.1", "memory.recompute=full",
                         "batch.global=16", "batch.slices=8", "batch.strands=8"}},
                    Row{"llama_fp16",
                        {"model.family=llama", "precision.compute=fp16", "batch.global=24", "batch.slices=24",
                         "batch.strands=8"}},
                    Row{"llama_fp8",
                        {"model.family=llama", "precision.compute=fp8", "precision.fp8_head=true",
                         "batch.global=16", "batch.slices=8", "batch.strands=8"}},
                    Row{"gpt2_parameters_of_several_chunks",
                        {"optim.moments=bf16", "memory.recompute=cheap", "model.hidden=64",
                         "model.vocab=3000", "batch.global=8", "batch.slices=8", "batch.strands=8"}},
                    Row{"mlp_lion",
                        {"model.family=mlp", "optim.name=lion", "batch.global=8", "batch.slices=8",
                         "batch.strands=8"}}),
    [](const auto& row) { return std::string(row.param.name); });

// A stage holds whole layers, so that it scales what one rank would.
TEST(SameBitsOnRanksMore, InPipelinesOfFp8) {
  LS_NEEDS_HOST_MEMORY();
  const Words recipe = {"model.family=llama", "precision.compute=fp8", "batch.global=16",
                        "batch.slices=8",     "batch.strands=4",       "model.layers=4"};
  const Result one = train_alone(recipe, 3);
  for (const char* schedule : {"1f1b", "zero-bubble"}) {
    const Words words = with(recipe, {"parallel.pipeline=2", std::string("parallel.schedule=") + schedule});
    for (const Result& many : train_on(2, words, 3)) {
      EXPECT_EQ(many.hash, one.hash) << schedule;
      EXPECT_EQ(many.losses, one.losses) << schedule;
      EXPECT_NEAR(static_cast<double>(many.peak_bytes), static_cast<double>(many.planned_bytes),
                  0.02 * static_cast<double>(many.planned_bytes));
    }
  }
}

// Seven strands are no power of two, and two ranks take three and four of them.
TEST(SameBitsOnRanksMore, WithStrandsThatAreNoPowerOfTwo) {
  LS_NEEDS_HOST_MEMORY();
  const Words recipe = {"batch.global=7", "batch.slices=7", "batch.strands=7"};
  const Result one = train_alone(recipe, 3);
  for (const int world : {2, 4, 5, 7}) {
    for (const char* zero : {"0", "1", "2", "3"}) {
      EXPECT_EQ(train_on(world, with(recipe, {std::string("parallel.zero=") + zero}), 3)[0].hash, one.hash)
          << world << " " << zero;
    }
  }
}

TEST(SameBitsOnRanksMore, ThroughEveryEngineAndInSmallBuckets) {
  LS_NEEDS_HOST_MEMORY();
  const Words recipe = {"batch.global=8", "batch.slices=8", "batch.strands=8"};
  const Result one = train_alone(recipe, 3);
  for (const char* engine : {"shm", "gloo"}) {
    for (const Words& words : {Words{"parallel.zero=0"},
                               {"parallel.zero=1", "parallel.shard=2"},
                               {"parallel.zero=2"},
                               {"parallel.zero=3"}}) {
      for (const int world : {3, 4}) {
        if (world == 3 && words.size() > 1) continue;
        const Words all = with(with(recipe, words), {"parallel.bucket_mib=0"});
        EXPECT_EQ(train_on(world, all, 3, engine)[0].hash, one.hash)
            << engine << " " << words[0] << " " << world;
      }
    }
  }
}

// As if ranks stood on several nodes: sums inside each first, where the tree allows, and all at once where
// not.
TEST(SameBitsOnNodes, InEveryLayout) {
  LS_NEEDS_HOST_MEMORY();
  struct Layout {
    int world, per_node;
    Words words;
  };
  std::vector<Layout> layouts;
  for (const auto& [world, per_node] : {std::pair(4, 2), {8, 4}, {8, 2}, {6, 2}, {6, 3}}) {
    for (const char* zero : {"0", "1", "2", "3"})
      layouts.push_back({world, per_node, {std::string("parallel.zero=") + zero}});
  }
  for (const char* zero : {"1", "2", "3"}) {
    layouts.push_back({8, 4, {std::string("parallel.zero=") + zero, "parallel.shard=2"}});
    layouts.push_back({8, 2, {std::string("parallel.zero=") + zero, "parallel.shard=4"}});
    layouts.push_back({8, 4, {std::string("parallel.zero=") + zero, "parallel.shard=4"}});
  }
  layouts.push_back({8, 4, {"parallel.tensor=2"}});
  layouts.push_back({8, 2, {"parallel.pipeline=2", "parallel.zero=1"}});
  for (const Words& recipe : {Words{"batch.global=8", "batch.slices=8", "batch.strands=8"},
                              {"model.tied=false", "precision.compute=bf16", "model.vocab=3000",
                               "model.hidden=64", "batch.global=16", "batch.slices=16", "batch.strands=8"}}) {
    const Result one = train_alone(recipe, 3);
    for (const Layout& layout : layouts) {
      const bool exact = layout.words[0] != "parallel.tensor=2";
      for (const char* engine : {"shm", "gloo"}) {
        if (engine == std::string("gloo") && recipe.size() > 3) continue;
        SCOPED_TRACE(fmt::format("{} ranks, {} a node, {}, {}", layout.world, layout.per_node,
                                 fmt::join(layout.words, " "), engine));
        const std::vector<Result> many =
            train_on(layout.world, with(recipe, layout.words), 3, engine, layout.per_node);
        for (const Result& rank : many) {
          ASSERT_EQ(rank.hash, exact ? one.hash : many[0].hash);
          ASSERT_EQ(rank.losses, exact ? one.losses : many[0].losses);
          ASSERT_NEAR(static_cast<double>(rank.peak_bytes), static_cast<double>(rank.planned_bytes),
                      0.02 * static_cast<double>(rank.planned_bytes) + 16384);
        }
      }
    }
  }
}

// The bytes that the plan says travel in a step are those that the groups count.
TEST(TrafficOnRanks, IsAsPlanned) {
  LS_NEEDS_HOST_MEMORY();
  struct Traffic {
    int world, per_node;
    Words words;
  };
  const Traffic rows[] = {
      {2, 0, {}},
      {4, 2, {}},
      {3, 1, {}},
      {4, 2, {"parallel.zero=1"}},
      {4, 2, {"parallel.zero=2"}},
      {4, 2, {"parallel.zero=3"}},
      {8, 4, {"parallel.zero=3", "parallel.shard=2"}},
      {4, 2, {"parallel.zero=3", "parallel.shard=2", "precision.compute=bf16"}},
      {4, 2, {"run.exact=false"}},
      {4, 2, {"run.exact=false", "parallel.zero=2", "parallel.wire=bf16"}},
      {4, 2, {"run.exact=false", "parallel.zero=1", "parallel.shard=2", "parallel.wire=bf16"}},
      {4, 2, {"parallel.tensor=2"}},
      {4, 2, {"parallel.tensor=2", "parallel.sequence=true"}},
      {4, 2, {"parallel.context=2"}},
      {4, 2, {"parallel.context=2", "parallel.context_form=heads"}},
      {4, 2, {"parallel.pipeline=2"}},
      {4, 2, {"parallel.pipeline=2", "parallel.schedule=zero-bubble", "parallel.zero=1"}},
  };
  for (const Traffic& row : rows) {
    SCOPED_TRACE(fmt::format("{} ranks, {} a node, {}", row.world, row.per_node, fmt::join(row.words, " ")));
    const Words recipe = {"batch.global=8", "batch.slices=8", "batch.strands=8", "log.eval_every=0"};
    for (const Result& rank : train_on(row.world, with(recipe, row.words), 4, "shm", row.per_node)) {
      EXPECT_EQ(rank.sent.inside, rank.planned.inside);
      EXPECT_EQ(rank.sent.across, rank.planned.across);
      EXPECT_GT(rank.planned.all(), 0);
      if (row.per_node == 0) {
        EXPECT_EQ(rank.planned.across, 0);
      }
    }
  }
}

// Without exactness the engine adds in its own order: near the exact result, and the same on every rank.
TEST(InTheEnginesOrder, ComesNearAndIsTheSameOnEveryRank) {
  LS_NEEDS_HOST_MEMORY();
  const Words recipe = {"batch.global=8", "batch.slices=8", "batch.strands=8"};
  const Result one = train_alone(recipe, 4);
  for (const char* wire : {"fp32", "bf16"}) {
    for (const Words& words : {Words{"parallel.zero=0"},
                               {"parallel.zero=1"},
                               {"parallel.zero=2"},
                               {"parallel.zero=3"},
                               {"parallel.zero=2", "parallel.shard=2"},
                               {"parallel.zero=1", "parallel.shard=2"}}) {
      const Words all = with(with(recipe, words), {"run.exact=false", std::string("parallel.wire=") + wire});
      const std::vector<Result> many = train_on(4, all, 4);
      for (const Result& result : many) EXPECT_EQ(result.hash, many[0].hash);
      for (size_t k = 0; k < one.losses.size(); ++k) {
        EXPECT_NEAR(many[0].losses[k], one.losses[k], std::string(wire) == "fp32" ? 1e-5 : 2e-2)
            << words[0] << " " << wire;
      }
    }
  }
}

// The allocator's peak on each rank is what the plan said.
TEST(MemoryOnRanks, IsAsPlanned) {
  LS_NEEDS_HOST_MEMORY();
  for (const char* zero : {"0", "1", "2", "3"}) {
    for (const Result& result : train_on(
             4, {"batch.global=8", "batch.slices=8", "batch.strands=8", std::string("parallel.zero=") + zero},
             1)) {
      EXPECT_GE(result.peak_bytes, result.planned_bytes);
      EXPECT_LE(static_cast<double>(result.peak_bytes),
                1.02 * static_cast<double>(result.planned_bytes) + 16384)
          << zero;
    }
  }
}

// What each stage shares out, against the textbook: N parameters of 4 bytes, two moments, W ranks.
TEST(MemoryOnRanks, FallsAsTheStagesSay) {
  LS_NEEDS_HOST_MEMORY();
  const int world = 8;
  struct Stage {
    const char* zero;
    double weights, gradients, moments;  // bytes a parameter
  };
  // Gradients: one buffer for each level of the stack of strands that a rank keeps.
  const Stage stages[] = {{"0", 4, 4, 8},
                          {"1", 4, 4, 8.0 / world},
                          {"2", 4, 4.0 / world, 8.0 / world},
                          {"3", 4.0 / world, 4.0 / world, 8.0 / world}};
  for (const Stage& stage : stages) {
    SCOPED_TRACE(stage.zero);
    double most = 0;
    for (int rank = 0; rank < world; ++rank) {
      const Plan plan =
          make_plan(tiny_recipe({"model.layers=6", "model.hidden=256", "model.heads=4", "model.vocab=16384",
                                 "batch.global=8", "batch.slices=8", "batch.strands=8",
                                 std::string("parallel.zero=") + stage.zero}),
                    {}, {.seat = {.rank = rank, .world = world}});
      const auto n = static_cast<double>(plan.model->param_count());
      const auto& kinds = plan.memory.persistent_by_kind;
      // The tied head has a gradient slot of its own.
      const double tied = static_cast<double>(16384 * 256) / n;
      const double levels = 1;  // one strand a rank: nothing waits beside it to be added
      EXPECT_EQ(plan.program.blocks[0].gradients.size(), 1u);
      EXPECT_NEAR(static_cast<double>(kinds.at(program::BufferKind::master)) / n / stage.weights, 1, 0.12);
      EXPECT_NEAR(static_cast<double>(kinds.at(program::BufferKind::optimizer)) / n / stage.moments, 1, 0.12);
      int64_t gradient_bytes = 0;
      for (const program::BlockBuffers& block : plan.program.blocks) {
        for (const int g : block.gradients)
          gradient_bytes += plan.program.buffers[static_cast<size_t>(g)].bytes();
      }
      EXPECT_NEAR(static_cast<double>(gradient_bytes) / n / (stage.gradients * levels * (1 + tied)), 1, 0.12);
      most = std::max(most, static_cast<double>(plan.memory.peak_bytes()) / n);
    }
    std::printf("zero %s: %.2f bytes a parameter on the fullest of %d ranks\n", stage.zero, most, world);
  }
}

// Saved on some ranks, loaded on others.
TEST(CheckpointsOnRanks, LoadIntoEveryLayout) {
  LS_NEEDS_HOST_MEMORY();
  const Words recipe = {"batch.global=8", "batch.slices=8", "batch.strands=8", "precision.compute=bf16",
                        "optim.moments=bf16"};
  const std::string expected = train_alone(recipe, 6).hash;
  struct Half {
    int world;
    Words words;
  };
  const Half halves[] = {{1, {}},
                         {3, {"parallel.zero=1"}},
                         {4, {"parallel.zero=2", "parallel.shard=2"}},
                         {4, {"parallel.zero=3"}}};
  for (const Half& saves : halves) {
    const base::TemporaryFolder folder;
    std::string saved;
    on_ranks(saves.world, "shm", [&](comm::World& world) {
      Ranks ranks(world);
      Words words = with(with(recipe, saves.words), {"run.steps=6"});
      Session session(make_plan(tiny_recipe(words), {}, for_this(ranks)), &ranks);
      std::atomic<int> stop{0};
      struct Stopper : Observer {
        std::atomic<int>* stop;
        void stepped(const StepReport& report) override {
          if (report.step == 2) *stop = 1;
        }
      } stopper;
      stopper.stop = &stop;
      // Only the last rank is asked to stop; all of them do, at the same step.
      TrainOptions options;
      if (world.rank() + 1 == world.size()) options.stop_signal = &stop;
      options.save = [&](int64_t step) {
        const std::string where = save_checkpoint(session, folder.path(), step);
        if (world.first()) saved = where;
      };
      const Summary summary = train(session, options, stopper);
      EXPECT_FALSE(summary.finished);
      EXPECT_EQ(summary.steps, world.size() == 1 ? 2 : 3);
    });
    for (const Half& loads : halves) {
      on_ranks(loads.world, "shm", [&](comm::World& world) {
        Ranks ranks(world);
        Words words = with(with(recipe, loads.words), {"run.steps=6"});
        Session session(make_plan(tiny_recipe(words), {}, for_this(ranks)), &ranks);
        Observer nobody;
        TrainOptions options;
        options.first_step = load_checkpoint(session, saved);
        EXPECT_EQ(train(session, options, nobody).params_hash, expected)
            << saves.world << " ranks to " << loads.world;
      });
    }
  }
}

TEST(NotFiniteOnRanks, IsNamedByEveryRank) {
  LS_NEEDS_HOST_MEMORY();
  for (const char* zero : {"0", "3"}) {
    on_ranks(2, "shm", [&](comm::World& world) {
      Ranks ranks(world);
      const Words words = {"batch.global=8", "batch.slices=8", "batch.strands=8", "run.steps=3",
                           std::string("parallel.zero=") + zero};
      Session session(make_plan(tiny_recipe(words), {}, for_this(ranks)), &ranks);
      for (const Parameters::Named& param : session.parameters->named()) {
        const bool mine = param.name == "transformer.h.1.mlp.c_fc.weight" && param.master.values.numel() > 0;
        if (mine) param.master.values.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      }
      Observer nobody;
      try {
        train(session, {}, nobody);
        ADD_FAILURE() << "trained on";
      } catch (const base::RunError& error) {
        EXPECT_NE(std::string(error.what()).find("block layer 1 (up)"), std::string::npos) << error.what();
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::run
