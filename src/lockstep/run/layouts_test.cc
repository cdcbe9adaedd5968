// Tensor, sequence, context and pipeline layouts against one rank, alone and composed. Ranks are threads
// here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/plan/simulate.h"
#include "lockstep/run/loop/trainer.h"
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
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.world << " ranks " << layout.words; }

// One row of a test: a family in a layout.
using Row = std::tuple<Family, Layout>;

// "gpt2_on_4_pipeline_2_zero_3"
std::string name_of(const testing::TestParamInfo<Row>& info) {
  const auto& [family, layout] = info.param;
  std::string words;
  for (std::string_view left = layout.words; !left.empty();) {
    const std::string_view word = left.substr(0, left.find(' '));
    left.remove_prefix(std::min(left.size(), word.size() + 1));
    words += fmt::format("_{}", word.substr(word.find('.') + 1));
  }
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return fmt::format("{}_on_{}{}", family.name, layout.world, words);
}

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

// Each family is trained on one rank once, whichever of its rows are run.
const Result& on_one_rank(const Family& family) {
  static std::map<std::string, Result> known;
  const auto found = known.find(family.name);
  if (found != known.end()) return found->second;
  comm::World world;
  return known.emplace(family.name, train_rank(family.recipe, world)).first->second;
}

bool computes(const Words& recipe, const char* format) {
  return std::find(recipe.begin(), recipe.end(), fmt::format("precision.compute={}", format)) != recipe.end();
}

class Layouts : public testing::TestWithParam<Row> {};

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

// Heads of 4 and 8 so that all layouts fit; a few steps with an optimizer that shows every gradient.
Words recipe(const Words& more) {
  Words words = {"run.steps=4",     "model.layers=4",   "model.hidden=64",   "model.heads=8",
                 "data.seq_len=32", "batch.global=16",  "batch.slices=8",    "batch.strands=4",
                 "optim.warmup=0",  "log.eval_every=0", "log.eval_batches=4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Family kGpt2{"gpt2", recipe({"model.dropout=0.1", "model.vocab=139"})};  // no two ranks divide it
const Family kLlama{"llama", recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128"})};
const Family kVariants[] = {
    // 4108, 2054 and 1027 columns are padded on 1, 2 and 4 tensor ranks
    {"gpt2_padded_vocabulary", recipe({"model.vocab=4108", "precision.compute=bf16"})},
    {"gpt2_untied_bf16", recipe({"model.tied=false", "precision.compute=bf16"})},
    {"llama_biases_odd_vocabulary",
     recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "model.vocab=4109",
             "model.attention_bias=true", "model.mlp_bias=true", "model.activation=gelu",
             "model.rope_scaling=4", "model.rope_type=dynamic", "model.rope_original_context=16",
             "model.tied=false"})},
    {"llama_untied_bf16", recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128",
                                  "precision.compute=bf16", "model.tied=false"})},
    {"llama_fp8",
     recipe({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=fp8"})},
};

// With a fixed number of product strands, tensor layouts too have the bits of one rank.
constexpr Layout kStrandLayouts[] = {
    {2, "parallel.tensor=2", true},
    {4, "parallel.tensor=4", true},
    {2, "parallel.tensor=2 parallel.sequence=true memory.recompute=full", true},
    {4, "parallel.tensor=4 parallel.sequence=true", true},
    {2, "memory.recompute=cheap", true},
    {4, "parallel.tensor=2 parallel.zero=3", true},
    {4, "parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true", true},
    {8, "parallel.pipeline=2 parallel.tensor=2 parallel.zero=3", true},
    {8, "parallel.tensor=4 parallel.zero=1 memory.recompute=cheap", true},
};
Words in_strands(const Words& more) {
  Words words = recipe({"batch.strands=8", "batch.product_strands=4"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
const Family kStrandFamilies[] = {
    {"gpt2_strands", in_strands({"model.dropout=0.1", "model.vocab=139", "memory.logits_chunk=13"})},
    {"gpt2_strands_bf16_moments", in_strands({"optim.moments=bf16", "precision.compute=bf16"})},
    {"llama_strands",
     in_strands({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "optim.clip=0.1"})},
    {"llama_strands_bf16_untied",
     in_strands({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16",
                 "model.tied=false", "model.vocab=4109"})},
    {"qwen3_strands_bf16",
     in_strands({"model.family=qwen3", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16"})},
    {"gemma2_strands",
     in_strands({"model.family=gemma2", "model.kv_heads=4", "model.ffn=128", "model.sliding_window=7",
                 "model.attn_softcap=2", "model.final_softcap=3"})},
};

// What else strands carry: layers that add both halves at once, norms over all heads, adapters, fp8.
constexpr Layout kFewStrandLayouts[] = {
    {4, "parallel.tensor=4", true},
    {2, "parallel.tensor=2 parallel.sequence=true memory.recompute=full", true},
    {8, "parallel.pipeline=2 parallel.tensor=2 parallel.zero=3 memory.recompute=cheap", true},
};
const Family kOtherStrandFamilies[] = {
    {"phi_strands", in_strands({"model.family=phi", "model.kv_heads=4", "model.dropout=0.1"})},
    {"neox_strands_bf16",
     in_strands({"model.family=gpt_neox", "model.dropout=0.1", "precision.compute=bf16"})},
    {"olmo2_strands", in_strands({"model.family=olmo2", "model.kv_heads=4"})},
    {"olmo2_strands_bf16", in_strands({"model.family=olmo2", "model.kv_heads=4", "precision.compute=bf16"})},
    {"gpt2_strands_lora", in_strands({"tune.method=lora", "tune.rank=4", "tune.dropout=0.1"})},
    {"llama_strands_lora_bf16",
     in_strands({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16",
                 "tune.method=lora", "tune.rank=2", "tune.targets=q_proj,v_proj,down_proj"})},
    {"llama_strands_qlora",
     in_strands({"model.family=llama", "model.hidden=256", "model.kv_heads=8", "model.ffn=256",
                 "precision.compute=bf16", "tune.method=lora", "tune.rank=4", "tune.base=nf4"})},
    {"llama_strands_fp8",
     in_strands({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=fp8"})},
    {"gpt2_strands_fp8_rows_head",
     in_strands({"precision.compute=fp8", "precision.fp8_scaling=row", "precision.fp8_head=true",
                 "model.vocab=192", "memory.logits_chunk=16", "model.dropout=0.1"})},
};

// What all layouts of a contract have in common is right, too: near the run without strands, also where
// slices of a strand are added up on one rank.
class Contracts : public testing::TestWithParam<Family> {};

TEST_P(Contracts, AreNearTheRunWithoutStrands) {
  LS_NEEDS_HOST_MEMORY();
  const auto result_of = [](const Words& words) {
    comm::World world;
    return train_rank(words, world);
  };
  const Words strands = with(GetParam().recipe, "batch.strands=4");
  Words plain = strands;
  std::erase_if(plain, [](const std::string& word) {
    return word.starts_with("batch.product_strands") || word.starts_with("batch.sequence_strands");
  });
  const Result one = result_of(plain), many = result_of(strands);
  const bool rounds = computes(plain, "bf16") || computes(plain, "fp8");
  const size_t steps = rounds ? 2 : one.losses.size();  // in bf16, steps drift apart once they differ
  EXPECT_LT(largest_difference({many.losses.begin(), many.losses.begin() + steps},
                               {one.losses.begin(), one.losses.begin() + steps}),
            computes(plain, "fp8") ? 2e-2
            : rounds               ? 5e-3
                                   : 1e-5);
  EXPECT_LT(largest_difference({many.norms[0]}, {one.norms[0]}), computes(plain, "fp8") ? 1e-1
                                                                 : rounds               ? 2e-2
                                                                                        : 1e-4);
  if (!rounds) EXPECT_LT(largest_difference(many.norms, one.norms), 1e-4);
}

// With a fixed number of sequence strands, context layouts too: in a ring and with heads exchanged alike.
constexpr Layout kPieceLayouts[] = {
    {2, "parallel.context=2", true},
    {4, "parallel.context=4", true},
    {2, "parallel.context=2 parallel.context_form=heads", true},
    {4, "parallel.context=4 parallel.context_form=heads memory.recompute=full", true},
    {2, "memory.recompute=cheap", true},
    {4, "parallel.context=2 parallel.zero=3", true},
    {4, "parallel.context=2 parallel.pipeline=2", true},
    {8, "parallel.context=4 parallel.zero=1 memory.recompute=full", true},
    {4, "parallel.context=2 parallel.pipeline=2 parallel.schedule=zero-bubble", true},
    {8, "parallel.context=2 parallel.context_form=heads parallel.zero=2 parallel.shard=2", true},
    {2, "parallel.tensor=2 parallel.sequence=true", false},
    {4, "parallel.tensor=2 parallel.context=2 parallel.sequence=true", false},
};
Words in_pieces(const Words& more) {
  Words words = recipe({"batch.strands=8", "batch.sequence_strands=4"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
const Family kPieceFamilies[] = {
    {"gpt2_pieces", in_pieces({"model.dropout=0.1", "model.vocab=139", "memory.logits_chunk=13"})},
    {"llama_pieces_bf16_untied",
     in_pieces({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16",
                "optim.moments=bf16", "model.tied=false", "model.vocab=4109"})},
};
constexpr Layout kFewPieceLayouts[] = {
    {2, "parallel.context=2", true},
    {4, "parallel.context=4 parallel.context_form=heads memory.recompute=full", true},
};
const Family kOtherPieceFamilies[] = {
    {"llama_pieces",
     in_pieces({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "optim.clip=0.1"})},
    {"qwen3_pieces_bf16",
     in_pieces({"model.family=qwen3", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16"})},
    {"gemma2_pieces", in_pieces({"model.family=gemma2", "model.kv_heads=4", "model.ffn=128",
                                 "model.sliding_window=7", "model.attn_softcap=2", "model.final_softcap=3"})},
    {"olmo2_pieces", in_pieces({"model.family=olmo2", "model.kv_heads=4"})},
    {"neox_pieces", in_pieces({"model.family=gpt_neox", "model.dropout=0.1"})},
    {"llama_pieces_lora", in_pieces({"model.family=llama", "model.kv_heads=4", "model.ffn=128",
                                     "tune.method=lora", "tune.rank=4", "tune.dropout=0.1"})},
    {"llama_pieces_fp8",
     in_pieces({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=fp8"})},
};
// And both: tensor and context ranks, alone and together.
constexpr Layout kBothLayouts[] = {
    {2, "parallel.tensor=2", true},
    {2, "parallel.context=2", true},
    {4, "parallel.tensor=2 parallel.context=2", true},
    {8, "parallel.tensor=4 parallel.context=2 parallel.context_form=heads", true},
    {8, "parallel.tensor=2 parallel.context=4 memory.recompute=cheap", true},
    {8, "parallel.tensor=2 parallel.context=2 parallel.pipeline=2 parallel.zero=1", true},
};
const Family kBothFamilies[] = {
    {"gpt2_both", in_pieces({"batch.product_strands=4", "model.dropout=0.1", "memory.logits_chunk=13"})},
    {"llama_both_bf16", in_pieces({"batch.product_strands=4", "model.family=llama", "model.kv_heads=8",
                                   "model.ffn=128", "precision.compute=bf16"})},
    {"neox_both_bf16",
     in_pieces({"batch.product_strands=4", "model.family=gpt_neox", "precision.compute=bf16"})},
    {"olmo2_both_fp8", in_pieces({"batch.product_strands=4", "model.family=olmo2", "model.kv_heads=8",
                                  "model.ffn=128", "precision.compute=fp8"})},
};

INSTANTIATE_TEST_SUITE_P(Every, Layouts,
                         testing::Combine(testing::Values(kGpt2, kLlama), testing::ValuesIn(kLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Strands, Layouts,
                         testing::Combine(testing::ValuesIn(kStrandFamilies),
                                          testing::ValuesIn(kStrandLayouts)),
                         name_of);
std::string name_of_family(const testing::TestParamInfo<Family>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Strands, Contracts, testing::ValuesIn(kStrandFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(OtherStrands, Contracts, testing::ValuesIn(kOtherStrandFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(Pieces, Contracts, testing::ValuesIn(kPieceFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(OtherPieces, Contracts, testing::ValuesIn(kOtherPieceFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(Both, Contracts, testing::ValuesIn(kBothFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(OtherStrands, Layouts,
                         testing::Combine(testing::ValuesIn(kOtherStrandFamilies),
                                          testing::ValuesIn(kFewStrandLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Pieces, Layouts,
                         testing::Combine(testing::ValuesIn(kPieceFamilies),
                                          testing::ValuesIn(kPieceLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OtherPieces, Layouts,
                         testing::Combine(testing::ValuesIn(kOtherPieceFamilies),
                                          testing::ValuesIn(kFewPieceLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Both, Layouts,
                         testing::Combine(testing::ValuesIn(kBothFamilies), testing::ValuesIn(kBothLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Variants, Layouts,
                         testing::Combine(testing::ValuesIn(kVariants), testing::ValuesIn(kEachKind)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Every, RecomputedLayouts,
                         testing::Combine(testing::Values(kGpt2, kLlama, kVariants[2]),
                                          testing::ValuesIn(kRounding)),
                         name_of);

Words small_recipe(const Words& more) {
  Words words = recipe({"run.steps=2", "model.layers=2", "model.hidden=32", "model.heads=4", "model.ffn=48",
                        "batch.global=8", "batch.slices=4", "model.vocab=139"});
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
