// Tensor, sequence, context and pipeline layouts against one rank, alone and composed. Ranks are threads
// here.
#include "lockstep/plan/simulate.h"
#include "lockstep/run/layouts_testing.h"
#include "lockstep/run/session/rank_layout.h"

namespace lockstep::run {
namespace {

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
  const auto& [family, layout] = GetParam();
  const Words& recipe = family.recipe;
  const Result& one = on_one_rank(family);
  const bool fp8 = computes(recipe, "fp8"), rounds = fp8 || computes(recipe, "bf16");
  const double tolerance = rounds ? 5e-3 : 1e-5;
  // Of a tiny model; quantized weights are hashed in fp32, some at a time.
  const bool quantized = std::find(recipe.begin(), recipe.end(), "tune.base=nf4") != recipe.end();
  const double page = quantized ? 65536 : 4096;
  const std::vector<Result> many = train_on(layout.world, with(recipe, layout.words));
  for (const Result& rank : many) {
    ASSERT_EQ(rank.hash, many[0].hash);
    ASSERT_EQ(rank.losses, many[0].losses);
    ASSERT_NEAR(static_cast<double>(rank.peak_bytes), static_cast<double>(rank.planned_bytes),
                std::max(page, 0.02 * static_cast<double>(rank.planned_bytes)));
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
                fp8      ? 1e-1
                : rounds ? 2e-2
                         : 1e-4);
      ASSERT_LT(std::abs(rank.eval_loss / one.eval_loss - 1), tolerance);
    }
  }
}

// What families and precisions add to segments, in each kind of layout.
constexpr Layout kEachKind[] = {
    {2, "parallel.zero=3", true},
    {2, "parallel.pipeline=2 parallel.schedule=zero-bubble memory.recompute=cheap", true},
    {4, "parallel.pipeline=2 parallel.zero=2", true},
    {2, "parallel.tensor=2 memory.logits_chunk=13", false},
    {2, "parallel.tensor=2 parallel.sequence=true memory.recompute=full", false},
    {4, "parallel.tensor=2 parallel.pipeline=2", false},
    {2, "parallel.context=2", false},
    {2, "parallel.context=2 parallel.context_form=heads memory.recompute=cheap", false},
    {4, "parallel.context=2 parallel.tensor=2", false},
};

// Where a layout rounds otherwise than one rank, it still does so alike with every recomputation.
class RecomputedLayouts : public testing::TestWithParam<Row> {};

TEST_P(RecomputedLayouts, HaveTheSameBits) {
  LS_NEEDS_HOST_MEMORY();
  const auto& [family, layout] = GetParam();
  const Words recipe = with(family.recipe, layout.words);
  const std::string expected = train_on(2, with(recipe, "memory.recompute=none"))[0].hash;
  for (const char* recompute : {"memory.recompute=cheap", "memory.recompute=full"})
    EXPECT_EQ(train_on(2, with(recipe, recompute))[0].hash, expected) << recompute;
}

constexpr Layout kRounding[] = {
    {2, "parallel.tensor=2", false},
    {2, "parallel.tensor=2 parallel.sequence=true", false},
    {2, "parallel.context=2", false},
};

// Before anything runs: sends match receives, collectives come in one order, nothing waits for ever.
TEST_P(Layouts, AreSound) {
  LS_NEEDS_HOST_MEMORY();
  const auto& [family, layout] = GetParam();
  std::vector<Plan> plans;
  for (int rank = 0; rank < layout.world; ++rank) {
    plans.push_back(make_plan(tiny_recipe(with(family.recipe, layout.words)), {},
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

// What a layer adds to the residuals is added before it is sent.
TEST(Pipeline, SendsOneRowATokenEachWay) {
  for (const Words& family :
       {Words{}, Words{"model.family=llama"}, Words{"model.family=gemma2"}, Words{"model.family=phi"},
        Words{"model.family=llama", "parallel.tensor=2", "parallel.sequence=true"}}) {
    Words all = {"model.layers=4", "model.hidden=64", "model.heads=4",       "data.seq_len=32",
                 "batch.global=8", "batch.slices=4",  "parallel.pipeline=2", "precision.compute=fp32"};
    all.insert(all.end(), family.begin(), family.end());
    const int tensor = family.size() > 2 ? 2 : 1;
    for (const int stage : {0, 1}) {
      const Plan plan = make_plan(tiny_recipe(all), {},
                                  {.must_fit = false, .seat = {.rank = stage * tensor, .world = 2 * tensor}});
      int64_t sent = 0, messages = 0;
      for (const program::Instruction& i : plan.program.instructions) {
        if (!i.is<program::SendValues>()) continue;
        sent += i.moved_bytes;
        messages += static_cast<int64_t>(i.reads.size());
      }
      EXPECT_EQ(messages, 4) << family.size() << " stage " << stage;
      EXPECT_EQ(sent, 8 * 32 * 64 * 4 / tensor) << family.size() << " stage " << stage;
    }
  }
}

const Family kGpt2{"gpt2",
                   layout_recipe({"model.dropout=0.1", "model.vocab=139"})};  // no two ranks divide it
const Family kLlama{"llama", layout_recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128"})};
const Family kVariants[] = {
    // 4108, 2054 and 1027 columns are padded on 1, 2 and 4 tensor ranks
    {"gpt2_padded_vocabulary", layout_recipe({"model.vocab=4108", "precision.compute=bf16"})},
    {"gpt2_untied_bf16", layout_recipe({"model.tied=false", "precision.compute=bf16"})},
    {"llama_biases_odd_vocabulary",
     layout_recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "model.vocab=4109",
                    "model.attention_bias=true", "model.mlp_bias=true", "model.activation=gelu",
                    "model.rope_scaling=4", "model.rope_type=dynamic", "model.rope_original_context=16",
                    "model.tied=false"})},
    {"llama_untied_bf16", layout_recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128",
                                         "precision.compute=bf16", "model.tied=false"})},
    {"llama_fp8",
     layout_recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=fp8"})},
};

INSTANTIATE_TEST_SUITE_P(Every, Layouts,
                         testing::Combine(testing::Values(kGpt2, kLlama), testing::ValuesIn(kLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Variants, Layouts,
                         testing::Combine(testing::ValuesIn(kVariants), testing::ValuesIn(kEachKind)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Every, RecomputedLayouts,
                         testing::Combine(testing::Values(kGpt2, kLlama, kVariants[2]),
                                          testing::ValuesIn(kRounding)),
                         name_of);

Words small_recipe(const Words& more) {
  Words words = layout_recipe({"run.steps=2", "model.layers=2", "model.hidden=32", "model.heads=4",
                               "model.ffn=48", "batch.global=8", "batch.slices=4", "model.vocab=139"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Family kOtherFamilies[] = {
    {"mistral", small_recipe({"model.family=mistral", "model.kv_heads=2", "model.sliding_window=9"})},
    {"qwen2", small_recipe({"model.family=qwen2", "model.kv_heads=2", "model.sliding_window=20",
                            "model.layer_types=full,sliding"})},
    {"qwen3", small_recipe({"model.family=qwen3", "model.kv_heads=2", "model.head_dim=12"})},
    {"qwen3_bf16", small_recipe({"model.family=qwen3", "precision.compute=bf16"})},
    {"gemma2", small_recipe({"model.family=gemma2", "model.kv_heads=2", "model.sliding_window=7",
                             "model.attn_softcap=2", "model.final_softcap=3", "model.query_scalar=10"})},
    {"gemma3", small_recipe({"model.family=gemma3", "model.kv_heads=2", "model.sliding_window=5",
                             "model.layer_types=sliding,full", "model.rope_scaling=4",
                             "model.rope_type=linear", "model.final_softcap=4"})},
    {"phi", small_recipe({"model.family=phi", "model.kv_heads=2", "model.dropout=0.1"})},
    {"phi3", small_recipe({"model.family=phi3", "model.kv_heads=2", "model.sliding_window=6"})},
    {"olmo2", small_recipe({"model.family=olmo2", "model.kv_heads=2"})},
    {"olmo2_bf16", small_recipe({"model.family=olmo2", "precision.compute=bf16"})},
    {"smollm3", small_recipe({"model.family=smollm3", "model.kv_heads=2", "model.no_rope_every=2"})},
    {"gpt_neox", small_recipe({"model.family=gpt_neox", "model.dropout=0.1"})},
    {"phi3_lora", small_recipe({"model.family=phi3", "model.kv_heads=2", "tune.method=lora"})},
    {"gpt_neox_lora", small_recipe({"model.family=gpt_neox", "tune.method=lora", "tune.dropout=0.1"})},
    {"gpt_neox_one_after_the_other",
     small_recipe({"model.family=gpt_neox", "model.parallel_residual=false"})},
};

INSTANTIATE_TEST_SUITE_P(Families, Layouts,
                         testing::Combine(testing::ValuesIn(kOtherFamilies), testing::ValuesIn(kEachKind)),
                         name_of);

}  // namespace
}  // namespace lockstep::run
