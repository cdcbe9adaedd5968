// Tensor, sequence, context and pipeline layouts against one rank, alone and composed. Ranks are threads
// here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/plan/simulate.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/memory_report.h"
#include "lockstep/run/session/rank_layout.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Words = std::vector<std::string>;

struct Result {
  std::string hash;
  std::vector<double> losses, norms;
  double eval_loss = 0;
  int64_t peak_bytes = 0, planned_bytes = 0;
};

struct Watcher : Observer {
  Result* result;
  void stepped(const StepReport& report) override {
    result->losses.push_back(report.loss);
    result->norms.push_back(report.grad_norm);
  }
};

Result train_rank(const Words& words, comm::World& world) {
  Ranks ranks(world);
  Plan plan = make_plan(tiny_recipe(words), {}, for_this(ranks));
  Result result;
  result.planned_bytes = plan.memory.peak_bytes();
  Session session(std::move(plan), &ranks);
  if (!ranks.alone()) session.executor->rehearse();  // as pipelines do on GPUs: it leaves nothing behind
  Watcher watcher;
  watcher.result = &result;
  const Summary summary = train(session, {}, watcher);
  result.hash = summary.params_hash;
  result.eval_loss = summary.eval_loss.value_or(0);
  result.peak_bytes = session.plan.device->peak_allocated_bytes();
  return result;
}

std::vector<Result> train_on(int world, const Words& words) {
  std::vector<Result> results(static_cast<size_t>(world));
  on_ranks(world, "shm",
           [&](comm::World& one) { results[static_cast<size_t>(one.rank())] = train_rank(words, one); });
  return results;
}

struct Family {
  const char* name;
  Words recipe;
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

struct Layout {
  int world;
  const char* words;  // with blanks between them
  bool exact;         // same bits as one rank
};

Words with(Words words, const std::string& more) {
  for (size_t begin = 0; begin < more.size();) {
    const size_t end = std::min(more.find(' ', begin), more.size());
    words.push_back(more.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1;
  for (size_t k = 0; k < std::min(a.size(), b.size()); ++k)
    most = std::max(most, std::abs(a[k] - b[k]) / std::abs(b[k]));
  return most;
}

class Layouts : public testing::TestWithParam<Family> {};

constexpr Layout kLayouts[] = {
    {2, "parallel.pipeline=2", true},
    {2, "parallel.pipeline=2 parallel.schedule=gpipe", true},
    {2, "parallel.pipeline=2 parallel.schedule=interleaved", true},
    {2, "parallel.pipeline=2 parallel.schedule=zero-bubble", true},
    {2, "parallel.pipeline=2 parallel.stages=3,1", true},
    {4, "parallel.pipeline=4", true},
    {4, "parallel.pipeline=4 parallel.schedule=gpipe memory.recompute=full", true},
    {3, "parallel.pipeline=3 parallel.schedule=interleaved", true},
    {4, "parallel.pipeline=4 parallel.schedule=zero-bubble", true},
    {4, "parallel.pipeline=2 parallel.zero=3", true},
    {6, "parallel.pipeline=2 parallel.zero=2 parallel.schedule=zero-bubble", true},
    {6, "parallel.pipeline=3 parallel.zero=1", true},
    {4, "parallel.pipeline=2 parallel.schedule=interleaved", true},
    {4, "parallel.pipeline=2 parallel.zero=3 memory.recompute=cheap", true},
    {4, "parallel.pipeline=4 parallel.schedule=zero-bubble memory.recompute=cheap", true},
    {2, "parallel.tensor=2", false},
    {2, "parallel.tensor=2 parallel.sequence=true memory.logits_chunk=13 memory.recompute=cheap", false},
    {4, "parallel.tensor=2 parallel.pipeline=2 memory.logits_chunk=13", false},
    {2, "parallel.tensor=2 parallel.sequence=true", false},
    {4, "parallel.tensor=4", false},
    {4, "parallel.tensor=4 parallel.sequence=true memory.recompute=full", false},
    {2, "parallel.tensor=2 parallel.sequence=true memory.recompute=up,attention", false},
    {4, "parallel.tensor=2 parallel.sequence=true", false},
    {4, "parallel.tensor=2 parallel.zero=3", false},
    {4, "parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true", false},
    {2, "parallel.context=2", false},
    {2, "parallel.context=2 parallel.context_form=heads", false},
    {4, "parallel.context=4", false},
    {4, "parallel.context=4 parallel.context_form=heads memory.recompute=full", false},
    {2, "parallel.context=2 memory.recompute=full", false},
    {2, "parallel.context=2 memory.recompute=attention", false},
    {4, "parallel.context=2 parallel.zero=2", false},
    {4, "parallel.context=2 parallel.tensor=2", false},
    {4, "parallel.context=2 parallel.pipeline=2 parallel.schedule=zero-bubble", false},
    {8, "parallel.context=2 parallel.tensor=2 parallel.sequence=true", false},
    {8, "parallel.pipeline=2 parallel.tensor=2 parallel.zero=3", false},
    {8, "parallel.context=2 parallel.context_form=heads parallel.tensor=2 parallel.pipeline=2", false},
};

TEST_P(Layouts, MatchOneRank) {
  LS_NEEDS_HOST_MEMORY();
  comm::World world;
  const Result one = train_rank(GetParam().recipe, world);
  const bool rounds = std::find(GetParam().recipe.begin(), GetParam().recipe.end(),
                                "precision.compute=bf16") != GetParam().recipe.end();
  const double tolerance = rounds ? 5e-3 : 1e-5;
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(fmt::format("{} ranks {}", layout.world, layout.words));
    const std::vector<Result> many = train_on(layout.world, with(GetParam().recipe, layout.words));
    for (const Result& rank : many) {
      ASSERT_EQ(rank.hash, many[0].hash);
      ASSERT_EQ(rank.losses, many[0].losses);
      ASSERT_NEAR(static_cast<double>(rank.peak_bytes), static_cast<double>(rank.planned_bytes),
                  0.02 * static_cast<double>(rank.planned_bytes));
      if (layout.exact) {
        ASSERT_EQ(rank.losses, one.losses);
        ASSERT_EQ(rank.norms, one.norms);
        ASSERT_EQ(rank.hash, one.hash);
        ASSERT_EQ(rank.eval_loss, one.eval_loss);
      } else {
        ASSERT_LT(largest_difference(rank.losses, one.losses), tolerance);
        // In bf16, steps drift apart once they have begun to differ.
        const size_t steps = rounds ? 1 : one.norms.size();
        ASSERT_LT(largest_difference({rank.norms.begin(), rank.norms.begin() + steps},
                                     {one.norms.begin(), one.norms.begin() + steps}),
                  rounds ? 2e-2 : 1e-4);
        ASSERT_LT(std::abs(rank.eval_loss / one.eval_loss - 1), tolerance);
      }
    }
  }
}

// Where a layout rounds otherwise than one rank, it still does so alike with every recomputation.
TEST_P(Layouts, RecomputeTheSameBits) {
  LS_NEEDS_HOST_MEMORY();
  for (const char* words :
       {"parallel.tensor=2", "parallel.tensor=2 parallel.sequence=true", "parallel.context=2"}) {
    const Words recipe = with(GetParam().recipe, words);
    const std::string expected = train_on(2, with(recipe, "memory.recompute=none"))[0].hash;
    for (const char* recompute : {"memory.recompute=cheap", "memory.recompute=full"})
      EXPECT_EQ(train_on(2, with(recipe, recompute))[0].hash, expected) << words << " " << recompute;
  }
}

// A tensor rank holds no more rows of its part of the logits than memory.logits_chunk says.
TEST(LogitsOfTensorRanks, ComeInChunks) {
  const auto plan_with = [](const char* chunk) {
    return make_plan(tiny_recipe({"parallel.tensor=2", "model.vocab=512", "batch.slices=1", chunk}), {},
                     {.must_fit = false, .seat = {.rank = 1, .world = 2}});
  };
  const Plan whole = plan_with("memory.logits_chunk=64"), chunked = plan_with("memory.logits_chunk=24");
  const auto rows_of_logits = [](const Plan& plan) {
    int64_t most = 0;
    for (const program::Buffer& buffer : plan.program.buffers) {
      if (buffer.shape.rank() == 2 && buffer.shape[1] == 256) most = std::max(most, buffer.shape[0]);
    }
    return most;
  };
  EXPECT_EQ(rows_of_logits(whole), 64);
  EXPECT_EQ(rows_of_logits(chunked), 24);
  EXPECT_LT(chunked.memory.live_bytes, whole.memory.live_bytes);
}

// Before anything runs: sends meet receives, collectives come in one order, nothing waits for ever.
TEST_P(Layouts, AreSound) {
  LS_NEEDS_HOST_MEMORY();
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(fmt::format("{} ranks {}", layout.world, layout.words));
    std::vector<Plan> plans;
    for (int rank = 0; rank < layout.world; ++rank) {
      plans.push_back(make_plan(tiny_recipe(with(GetParam().recipe, layout.words)), {},
                                {.must_fit = false, .seat = {.rank = rank, .world = layout.world}}));
      program::order(plans.back().program);
    }
    plan::World world =
        plan::world_of(mesh_of(plans[0].layout.ranks, plans[0].model->parts, plans[0].layout.stages));
    for (int rank = 0; rank < layout.world; ++rank) {
      world.programs.push_back(&plans[static_cast<size_t>(rank)].program);
      world.program_of[static_cast<size_t>(rank)] = rank;
    }
    EXPECT_NO_THROW(plan::check_world(world, {.links_by_direction = true}));
  }
}

// Heads of 4 and 8 so that all layouts fit; a few steps with an optimizer that shows every gradient.
Words recipe(const Words& more) {
  Words words = {"run.steps=4",     "model.layers=4",   "model.hidden=64",   "model.heads=8",
                 "data.seq_len=32", "batch.global=16",  "batch.slices=8",    "batch.strands=4",
                 "optim.warmup=0",  "log.eval_every=0", "log.eval_batches=4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

INSTANTIATE_TEST_SUITE_P(
    Families, Layouts,
    testing::Values(Family{"gpt2", recipe({"model.dropout=0.1",
                                           "model.vocab=139"})},  // no two ranks divide it
                                                                  // 4108, 2054 and 1027 columns are padded on
                                                                  // 1, 2 and 4 tensor ranks
                    Family{"gpt2_padded_vocabulary", recipe({"model.vocab=4108", "precision.compute=bf16"})},
                    Family{"gpt2_untied_bf16", recipe({"model.tied=false", "precision.compute=bf16"})},
                    Family{"llama_biases_odd_vocabulary",
                           recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128",
                                   "model.vocab=4109", "model.attention_bias=true", "model.mlp_bias=true",
                                   "model.activation=gelu", "model.rope_scaling=4", "model.rope_type=dynamic",
                                   "model.rope_original_context=16", "model.tied=false"})},
                    Family{"llama", recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128"})},
                    Family{"llama_untied_bf16",
                           recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128",
                                   "precision.compute=bf16", "model.tied=false"})}),
    [](const auto& row) { return row.param.name; });

TEST(ChooseLayout, TakesTheFastestThatFits) {
  LS_NEEDS_HOST_MEMORY();
  const PlanOptions four{.seat = {.rank = 0, .world = 4, .local_world = 4}};
  recipe::Resolved roomy = tiny_recipe(recipe({"parallel.auto=true"}));
  EXPECT_NE(choose_layout(roomy, four).find("chosen"), std::string::npos);
  EXPECT_EQ(roomy.recipe.parallel.tensor * roomy.recipe.parallel.context * roomy.recipe.parallel.pipeline, 1);
  EXPECT_FALSE(roomy.recipe.parallel.automatic);
  // Less memory than the copies of data ranks would take: something is shared, and then it fits.
  recipe::Resolved alone = tiny_recipe(recipe({}));
  const int64_t whole = make_plan(alone, {}, four).memory.peak_bytes();
  const double limit = static_cast<double>(whole) * 0.5 / (1 << 30);
  recipe::Resolved tight =
      tiny_recipe(recipe({"parallel.auto=true", fmt::format("memory.limit_gib={:.9f}", limit)}));
  choose_layout(tight, four);
  EXPECT_LE(make_plan(tight, {}, four).memory.peak_bytes(), whole / 2);
  // What the user set stays.
  recipe::Resolved settled = tiny_recipe(recipe({"parallel.auto=true", "parallel.tensor=2"}));
  choose_layout(settled, four);
  EXPECT_EQ(settled.recipe.parallel.tensor, 2);
  recipe::Resolved wishes = tiny_recipe(recipe(
      {"parallel.auto=true", "parallel.pipeline=2", "parallel.schedule=gpipe", "parallel.zero=optimizer"}));
  choose_layout(wishes, four);
  EXPECT_EQ(wishes.recipe.parallel.schedule, "gpipe");
  EXPECT_EQ(zero_stage(wishes.recipe.parallel.zero), 1);
  recipe::Resolved groups = tiny_recipe(recipe({"parallel.auto=true", "parallel.shard=2"}));
  choose_layout(groups, four);
  EXPECT_GT(zero_stage(groups.recipe.parallel.zero), 0);
  EXPECT_NO_THROW(make_plan(groups, {}, four));
  recipe::Resolved hopeless = tiny_recipe(recipe({"parallel.auto=true", "memory.limit_gib=0.000001"}));
  EXPECT_THROW(choose_layout(hopeless, four), base::ConfigError);
}

// Whole gradients that wait for a strand's last slice are most of what a rank holds that shares them out.
TEST(Remedies, MoreStrandsWhereGradientsAreSharedOut) {
  const auto remedy = [](const char* zero) -> int64_t {
    const Plan plan = make_plan(
        tiny_recipe({"batch.global=16", "batch.slices=16", "batch.strands=4", "parallel.bucket_mib=0", zero}),
        {}, {.must_fit = false, .seat = {.rank = 0, .world = 4}});
    for (const Remedy& one : remedies(plan)) {
      if (one.change == "batch.strands=16") return one.peak_bytes - plan.memory.peak_bytes();
    }
    return 0;
  };
  EXPECT_EQ(remedy("parallel.zero=1"), 0);
  EXPECT_LT(remedy("parallel.zero=2"), 0);
  EXPECT_LT(remedy("parallel.zero=3"), 0);
}

// A cluster is planned on a laptop: ranks elsewhere have what the recipe says, those here at most what is
// here.
TEST(MemoryLimit, IsWhatRanksThatNeedNotExistHave) {
  const recipe::Resolved recipe = tiny_recipe({"memory.limit_gib=100000"});
  EXPECT_EQ(make_plan(recipe, {}, {.exists = false}).available_bytes, int64_t{100000} << 30);
  EXPECT_LT(make_plan(recipe, {}).available_bytes, int64_t{100000} << 30);
}

TEST(LayoutRules, AreRefusedWithAWayOut) {
  struct Row {
    int world;
    Words words;
    int number;
    const char* says;
  };
  const Row rows[] = {
      {4, {"parallel.tensor=4", "parallel.pipeline=2"}, 157, "tensor 4 x pipeline 2 needs 8 ranks"},
      {8, {"parallel.tensor=8", "model.heads=4"}, 164, "model.heads = 4"},
      {4, {"parallel.tensor=4", "model.heads=6", "model.hidden=96"}, 164, "choose one of 1, 2 ["},
      {4, {"parallel.context=4", "data.seq_len=20"}, 165, "data.seq_len = 20"},
      {8,
       {"parallel.context=8", "parallel.context_form=heads", "model.heads=4", "data.seq_len=64"},
       165,
       "heads"},
      {8, {"parallel.pipeline=8", "model.layers=2"}, 158, "use at most 4 stages (parallel.pipeline=4 on"},
      {2,
       {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=9", "model.layers=2"},
       158,
       "set parallel.chunks=2"},
      {2,
       {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=9", "model.layers=1"},
       158,
       "set parallel.schedule=1f1b"},
      {8,
       {"parallel.pipeline=8", "parallel.schedule=interleaved", "parallel.chunks=9", "model.layers=2"},
       158,
       "parallel.pipeline=4 and parallel.schedule=1f1b on"},
      {2, {"parallel.pipeline=2", "parallel.stages=1,2"}, 159, "places 3 layers"},
      {2, {"parallel.pipeline=2", "parallel.stages=99999999999,5"}, 159, "places 100000000004 layers"},
      {2, {"parallel.stages=2,2"}, 159, "set parallel.pipeline=2"},
      {3, {"parallel.pipeline=3", "parallel.stages=4,0,0"}, 159, "use parallel.stages=1,2,1 or"},
      {1, {"parallel.stages=3"}, 159, "use parallel.stages=4 or"},
      {4,
       {"run.exact=false", "batch.global=24", "batch.slices=24", "batch.strands=6"},
       156,
       "set batch.strands=8,"},
      {4,
       {"run.exact=false", "batch.global=6", "batch.slices=6", "batch.strands=6"},
       156,
       "start a different number, or"},
      {4, {"parallel.shard=2"}, 153, "set parallel.zero=3"},
      {4,
       {"parallel.tensor=1048576", "parallel.context=1048576", "parallel.pipeline=1048576"},
       157,
       "4 started: set parallel.tensor=4"},
      {4, {"parallel.data=4", "parallel.tensor=2"}, 152, "data 4 x tensor 2 needs 8 ranks"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.says);
    try {
      make_plan(tiny_recipe(with(recipe({"model.layers=4"}), fmt::format("{}", fmt::join(row.words, " ")))),
                {}, {.must_fit = false, .seat = {.rank = 0, .world = row.world}});
      FAIL() << "was not refused";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.number(), row.number) << error.what();
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::run
