// What is known of a layout before anything runs: what is refused, what "auto" chooses, what memory it takes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/memory_report.h"
#include "lockstep/run/session/rank_layout.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Words = std::vector<std::string>;

Words recipe(const Words& more) {
  Words words = {"run.steps=4",     "model.layers=4",   "model.hidden=64",   "model.heads=8",
                 "data.seq_len=32", "batch.global=16",  "batch.slices=8",    "batch.strands=4",
                 "optim.warmup=0",  "log.eval_every=0", "log.eval_batches=4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
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

// A narrow model with a wide vocabulary: its products are few, and it is the bytes of logits (8 KB a token in
// fp32, written and read several times, where a layer's values have some hundreds) that fill a stage.
TEST(StageCut, CountsBytesThatAreMoved) {
  const Plan plan = make_plan(tiny_recipe({"model.layers=12", "model.hidden=8", "model.heads=2",
                                           "model.vocab=2000", "data.seq_len=256", "parallel.pipeline=2"}),
                              {}, {.must_fit = false, .seat = {.rank = 0, .world = 2}});
  ASSERT_EQ(plan.layout.stages.pieces.size(), 2u);
  EXPECT_GE(plan.layout.stages.pieces[1].begin, 12) << "the head, and one layer at the most";
  EXPECT_EQ(plan.layout.stages.pieces[1].end, 14);
}

// Of many ranks only those are compiled that may be the fullest; none that is may be passed over, and none
// that was estimated may stand for it.
TEST(FullestRank, IsExactAmongMany) {
  LS_NEEDS_HOST_MEMORY();
  constexpr int kWorld = 96;  // few parameters among many ranks: shares differ by whole chunks
  const Words layouts[] = {{"parallel.pipeline=2", "parallel.zero=1", "model.hidden=320"},
                           {"parallel.pipeline=3", "parallel.zero=1", "model.hidden=128"},
                           {"parallel.pipeline=4", "parallel.zero=1", "model.hidden=192", "model.tied=false"},
                           {"parallel.pipeline=4", "parallel.zero=3", "model.hidden=128"},
                           {"parallel.pipeline=6", "parallel.zero=1", "model.hidden=128"},
                           {"parallel.pipeline=6", "parallel.zero=2", "model.hidden=128"},
                           {"parallel.pipeline=2", "parallel.tensor=2", "parallel.zero=2"}};
  for (const Words& layout : layouts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    Words words = recipe({"batch.global=96", "batch.slices=96", "batch.strands=96"});
    words.insert(words.end(), layout.begin(), layout.end());
    const Plan plan =
        make_plan(tiny_recipe(words), {}, {.must_fit = false, .seat = {.rank = 0, .world = kWorld}});
    int64_t most = 0;
    for (int rank = 0; rank < kWorld; ++rank) {
      program::MemoryPlan memory;
      compile_for_rank(plan, rank, memory);
      most = std::max(most, memory.peak_bytes());
    }
    EXPECT_NEAR(static_cast<double>(fullest_rank_bytes(plan)), static_cast<double>(most), 1024);  // alignment
  }
}

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
  recipe::Resolved resolved = tiny_recipe(recipe({"parallel.auto=true", "parallel.tensor=2"}));
  choose_layout(resolved, four);
  EXPECT_EQ(resolved.recipe.parallel.tensor, 2);
  recipe::Resolved scheduled = tiny_recipe(recipe(
      {"parallel.auto=true", "parallel.pipeline=2", "parallel.schedule=gpipe", "parallel.zero=optimizer"}));
  choose_layout(scheduled, four);
  EXPECT_EQ(scheduled.recipe.parallel.schedule, "gpipe");
  EXPECT_EQ(zero_stage(scheduled.recipe.parallel.zero), 1);
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
      {1, {"batch.product_strands=3"}, 161, "is not a power of two; choose one of 1, 2, 4"},
      {2, {"batch.product_strands=8", "model.heads=4"}, 161, "model.heads = 4; choose one of 1, 2, 4 ["},
      {4, {"batch.product_strands=2", "parallel.tensor=4"}, 161, "is not a multiple of parallel.tensor = 4"},
      {2,
       {"batch.product_strands=2", "parallel.tensor=2", "batch.slices=8", "batch.strands=4"},
       161,
       "8 slices in 4 strands; set batch.strands=8"},
      {1, {"batch.product_strands=2", "optim.name=muon"}, 161, "must see whole"},
      {1, {"batch.sequence_strands=3"}, 149, "is not a power of two; choose one of 1, 2, 4"},
      {4,
       {"batch.sequence_strands=2", "parallel.context=4"},
       149,
       "is not a multiple of parallel.context = 4"},
      {1, {"batch.sequence_strands=4", "data.seq_len=12"}, 149, "which do not divide data.seq_len = 12"},
      {2,
       {"batch.sequence_strands=2", "parallel.context=2", "batch.slices=8", "batch.strands=4"},
       149,
       "needs one slice per strand"},
      {1, {"batch.sequence_strands=2", "model.family=mlp"}, 149, "does not have"},
      {2,
       {"batch.sequence_strands=2", "batch.product_strands=2", "parallel.tensor=2", "parallel.sequence=true"},
       149,
       "set parallel.sequence=false"},
      {1,
       {"batch.sequence_strands=2", "batch.product_strands=2", "model.family=qwen3"},
       149,
       "gradient of model.layers.0.self_attn.q_norm.weight is summed over both"},
      {1,
       {"batch.sequence_strands=2", "batch.product_strands=2", "model.family=llama", "tune.method=lora"},
       149,
       "lora_A.weight is summed over both"},
      {4, {"parallel.tensor=4", "model.heads=6", "model.hidden=96"}, 164, "choose one of 1, 2 ["},
      {2, {"parallel.tensor=2", "model.ffn=129"}, 164, "model.ffn = 129; set parallel.tensor=1 ["},
      {4, {"parallel.context=4", "data.seq_len=20"}, 165, "data.seq_len = 20"},
      {8,
       {"parallel.context=8", "parallel.context_form=heads", "model.heads=4", "data.seq_len=64"},
       165,
       "heads"},
      {2,
       {"parallel.context=2", "parallel.context_form=heads", "model.heads=4", "batch.product_strands=4"},
       165,
       "1 kv_heads of each product strand"},
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
      make_plan(tiny_recipe(recipe(row.words)), {},
                {.must_fit = false, .seat = {.rank = 0, .world = row.world}});
      FAIL() << "was not refused";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.number(), row.number) << error.what();
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::run
