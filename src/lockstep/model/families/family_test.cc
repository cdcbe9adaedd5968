// Sizes that the families are known by: what the presets hold, and what "auto" comes to.
#include "lockstep/model/families/family.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/model/families/decoder.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface.h"

namespace lockstep::model {
namespace {

recipe::Resolved resolved(const std::vector<std::string>& words, int64_t data_vocab = 137) {
  recipe::Resolved recipe = recipe::read_recipe({.file = "", .overrides = words});
  resolve_model(recipe, data_vocab);
  return recipe;
}

struct Preset {
  const char *family, *name;
  int64_t parameters, head_dim;
  double theta;
  int64_t kv_heads = 0;  // 0: as many as heads
};

// GPT-2's papers and Hugging Face's model cards. Our vocabulary of 50304 has 47 rows more than theirs.
TEST(Families, PresetsHaveThePublishedSizes) {
  const Preset rows[] = {{"gpt2", "124m", 124'439'808 + 47 * 768, 64, 10000},
                         {"gpt2", "350m", 354'823'168 + 47 * 1024, 64, 10000},
                         {"gpt2", "774m", 774'030'080 + 47 * 1280, 64, 10000},
                         {"gpt2", "1.5b", 1'557'611'200 + 47 * 1600, 64, 10000},
                         {"llama", "1b", 1'235'814'400, 64, 500000, 8},
                         {"llama", "3b", 3'212'749'824, 128, 500000, 8},
                         {"llama", "8b", 8'030'261'248, 128, 500000, 8},
                         {"mistral", "7b", 7'241'732'096, 128, 10000, 8},
                         {"qwen2", "0.5b", 494'032'768, 64, 1e6, 2},
                         {"qwen2", "7b", 7'615'616'512, 128, 1e6, 4},
                         {"qwen3", "0.6b", 596'049'920, 128, 1e6, 8},
                         {"qwen3", "8b", 8'190'735'360, 128, 1e6, 8},
                         {"gemma2", "2b", 2'614'341'888, 256, 10000, 4},
                         {"gemma3", "1b", 999'885'952, 256, 1e6, 1},
                         {"phi", "2", 2'779'683'840, 80, 10000},
                         {"phi3", "mini", 3'821'079'552, 96, 10000},
                         {"olmo2", "1b", 1'484'916'736, 128, 500000},
                         {"smollm3", "3b", 3'075'098'624, 128, 5e6, 4},
                         {"gpt_neox", "160m", 162'322'944, 64, 10000}};
  size_t presets = 0;
  for (const Family& family : families()) presets += family.presets.size();
  EXPECT_EQ(presets, std::size(rows)) << "a preset without a row here";
  for (const Preset& row : rows) {
    const recipe::Recipe recipe =
        resolved({std::string("model.family=") + row.family, std::string("model.preset=") + row.name}).recipe;
    EXPECT_EQ(build_model(recipe, DType::bf16).param_count(), row.parameters)
        << row.family << " " << row.name;
    EXPECT_EQ(recipe.model.head_dim.value, row.head_dim) << row.name;
    EXPECT_EQ(recipe.model.rope_theta, row.theta) << row.name;
    EXPECT_EQ(recipe.model.kv_heads.value, row.kv_heads > 0 ? row.kv_heads : recipe.model.heads) << row.name;
  }
}

// Which layers see a window only.
TEST(Families, LayerTypesTakeTurns) {
  const auto sliding = [](const std::string& types, const std::string& layers) {
    const recipe::Recipe::Model m = resolved({"model.family=gemma2", "model.layer_types=" + types,
                                              "model.layers=" + layers, "model.sliding_window=5"})
                                        .recipe.model;
    std::string all;
    for (int64_t i = 0; i < m.layers; ++i) all += slides(m, i) ? 's' : 'f';
    return all;
  };
  EXPECT_EQ(sliding("", "3"), "sss");
  EXPECT_EQ(sliding("full", "2"), "ff");
  EXPECT_EQ(sliding("sliding,full", "5"), "sfsfs");
  EXPECT_EQ(sliding("sliding*5, full", "8"), "sssssfss");
  EXPECT_EQ(base::number_of_refusal([] {
              resolved({"model.family=gemma2", "model.layer_types=local"});
            }),
            104);
}

TEST(Families, KeyHeadsDivideTheHeadsAndAdviceWorks) {
  const auto says = [](const std::string& family, const std::string& kv_heads) {
    return base::refusal(123, [&] {
      resolved({"model.family=" + family, "model.heads=4", "model.hidden=32", "model.kv_heads=" + kv_heads});
    });
  };
  EXPECT_NE(says("llama", "3").find("choose one of"), std::string::npos);
  EXPECT_NE(says("gpt2", "2").find("or set model.family=llama"), std::string::npos);
  EXPECT_EQ(says("gpt2", "3").find("model.family="), std::string::npos) << "a llama would refuse it too";
}

TEST(Families, AutoIsWhatTheDocsSay) {
  const recipe::Recipe::Model gpt2 =
      resolved({"model.hidden=96", "model.heads=3", "data.seq_len=40"}).recipe.model;
  EXPECT_EQ(gpt2.ffn.value, 4 * 96);
  EXPECT_EQ(gpt2.kv_heads.value, 3);
  EXPECT_EQ(gpt2.head_dim.value, 32);
  EXPECT_EQ(gpt2.context.value, 40);
  EXPECT_EQ(gpt2.vocab.value, 192);  // 137 up to a multiple of 64
  EXPECT_EQ(resolved({}, 192).recipe.model.vocab.value, 192);
  const auto llama_ffn = [](const char* hidden) {
    return resolved({"model.family=llama", "model.heads=1", std::string("model.hidden=") + hidden})
        .recipe.model.ffn.value;
  };
  EXPECT_EQ(llama_ffn("24"), 64);  // 8/3 of it, up to a multiple of 64
  EXPECT_EQ(llama_ffn("48"), 128);
  EXPECT_EQ(llama_ffn("100"), 320);  // 266.7
  EXPECT_EQ(llama_ffn("250"), 704);  // 666.7
}

// nanoGPT's estimate: six for each parameter in a product, twelve a layer for attention.
TEST(Families, FlopsAreNanoGptsEstimate) {
  const recipe::Recipe recipe = resolved({"model.preset=124m"}).recipe;
  const double layer = 12.0 * 768 * 768, head = 50304.0 * 768;
  EXPECT_DOUBLE_EQ(build_model(recipe, DType::bf16).flops_per_token(1024),
                   6 * (12 * layer + head) + 12.0 * 12 * 768 * 1024);
  const Parts in_pieces{.context = 2, .context_rank = 1, .sequence_strands = 8};  // as many, however computed
  EXPECT_DOUBLE_EQ(build_model(recipe, DType::bf16, in_pieces).flops_per_token(1024),
                   6 * (12 * layer + head) + 12.0 * 12 * 768 * 1024);
}

// Of a frozen weight there is no gradient, and below the lowest trained one no backward pass at all.
TEST(Families, FlopsOfFrozenWeightsAreNotCounted) {
  Model model = build_model(resolved({"model.preset=124m"}).recipe, DType::bf16);
  const double layer = 12.0 * 768 * 768, head = 50304.0 * 768, attention = 768 * 1024;
  for (size_t b = 0; b + 2 < model.blocks.size(); ++b) {  // all but the last layer and the head
    for (const ParamSpec& spec : model.blocks[b].params()) model.blocks[b].treat(spec.name, {.frozen = true});
  }
  EXPECT_DOUBLE_EQ(model.flops_per_token(1024),
                   2 * 11 * layer + 6 * (layer + head) + (4 * 11 + 12) * attention);
  Block& last = model.blocks[model.blocks.size() - 2];
  for (const ParamSpec& spec : last.params())
    last.treat(spec.name, {.frozen = spec.name.ends_with(".weight")});
  EXPECT_DOUBLE_EQ(model.flops_per_token(1024),
                   2 * 11 * layer + 4 * layer + 6 * head + (4 * 11 + 12) * attention);
}

// A row that this program adds before anything looks at the table: a gpt2 of other defaults, which
// transformers knows under two names.
[[maybe_unused]] const bool kAdded = [] {
  Family family = gpt2_family();
  family.name = "cousin";
  family.presets.clear();
  family.heads = Heads{.own_width = true};
  family.defaults = {.ffn = [](const recipe::Recipe::Model& m) { return 3 * m.hidden; },
                     .head_dim = [](const recipe::Recipe::Model&) { return int64_t{8}; },
                     .activation = "relu",
                     .keys = {{"model.tied", "false"}, {"model.norm_epsilon", "1e-6"}}};
  family.fp8_products = nullptr;
  family.check = [](const recipe::Recipe& recipe) {
    if (recipe.model.layers > 9) throw base::ConfigError(124, "a cousin has nine layers at most");
  };
  family.huggingface->model_types = {"cousin", "cousin_text"};
  family.huggingface->architecture = "CousinForCausalLM";
  register_family(family);
  return true;
}();

// transformers opens such models of these families, and of a llama not.
TEST(Family, HeadsNeedNotDivideTheModelWhereTheyHaveAWidthOfTheirOwn) {
  const auto keys = [](const char* family, std::vector<std::string> more) {
    more.insert(more.end(), {std::string("model.family=") + family, "model.hidden=50", "model.heads=3",
                             "model.kv_heads=1"});
    return more;
  };
  for (const char* family : {"qwen3", "mistral"}) {
    EXPECT_EQ(resolved(keys(family, {"model.head_dim=14"})).recipe.model.head_dim.value, 14);
    EXPECT_THROW(resolved(keys(family, {})), base::ConfigError);
  }
  EXPECT_THROW(resolved(keys("llama", {"model.head_dim=14"})), base::ConfigError);
}

TEST(AddedFamily, HasItsOwnDefaultsAndChecks) {
  const recipe::Resolved all = resolved({"model.family=cousin", "model.hidden=96", "model.heads=3"});
  const recipe::Recipe::Model& m = all.recipe.model;
  EXPECT_EQ(m.ffn.value, 3 * 96);
  EXPECT_EQ(m.head_dim.value, 8);
  EXPECT_EQ(activation_name(m), "relu");
  EXPECT_FALSE(m.tied);
  EXPECT_EQ(all.origin.at("model.tied"), "family cousin");
  EXPECT_EQ(build_model(all.recipe, DType::f32).family, "cousin");
  EXPECT_TRUE(
      resolved({"model.family=cousin", "model.tied=true"}).recipe.model.tied);  // the user's word counts
  EXPECT_NE(base::refusal(124,
                          [] {
                            resolved({"model.family=cousin", "model.layers=10"});
                          })
                .find("nine"),
            std::string::npos);
  EXPECT_EQ(base::number_of_refusal([] { resolved({"model.family=cousin", "model.kv_heads=2"}); }), 123);
  EXPECT_NE(base::refusal(124, [] { resolved({"model.head_dim=8"}); })
                .find("model.family=llama or mistral or qwen3 or gemma2 or gemma3 or cousin"),
            std::string::npos);
}

TEST(AddedFamily, IsRefusedWhereItSaysNothing) {
  const recipe::Recipe recipe = resolved({"model.family=cousin", "precision.compute=fp8"}).recipe;
  EXPECT_NE(base::refusal(185, [&] { check_fp8(recipe, {}); }).find("cousin"), std::string::npos);
}

TEST(AddedFamily, ConfigJsonGoesBothWays) {
  recipe::Resolved first = resolved({"model.family=cousin", "model.layers=3", "model.vocab=192"});
  const std::string config = huggingface_config(first.recipe);
  EXPECT_NE(config.find("CousinForCausalLM"), std::string::npos);
  recipe::Resolved second = recipe::read_recipe({});
  adopt_config(second, config, "there/config.json");
  EXPECT_EQ(second.recipe.model.family, "cousin");
  EXPECT_EQ(second.recipe.model.layers, 3);
  recipe::Resolved third = recipe::read_recipe({.overrides = {"model.from=there"}});
  adopt_config(third, R"({"model_type": "cousin_text", "n_layer": 5})", "there/config.json");
  resolve_model(third, 137);
  EXPECT_EQ(third.recipe.model.layers, 5);
  EXPECT_TRUE(third.recipe.model.tied);  // what the folder means counts more than the family's default
  recipe::Resolved other = recipe::read_recipe({});
  EXPECT_NE(
      base::refusal(177, [&] { adopt_config(other, R"({"model_type": "mamba"})", "c.json"); })
          .find("model_type \"mamba\" is not supported; supported are gpt2, llama, mistral, qwen2, qwen3, "
                "gemma2, gemma3_text, phi, phi3, olmo2, smollm3, gpt_neox, cousin and cousin_text"),
      std::string::npos);
}

}  // namespace
}  // namespace lockstep::model
