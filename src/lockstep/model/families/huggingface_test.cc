#include "lockstep/model/families/huggingface.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/segments/activation.h"

namespace lockstep::model {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

recipe::Resolved recipe_of(const Words& words) {
  return recipe::read_recipe({.file = "", .overrides = words});
}

// What the config says must come out again when the recipe that adopted it writes one.
TEST(HuggingFace, ARecipeAndItsConfigAgree) {
  const Words recipes[] = {
      {"model.family=gpt2", "model.hidden=96", "model.heads=3", "model.layers=5", "model.vocab=300"},
      {"model.family=gpt2", "model.tied=false", "model.ffn=100", "model.norm_epsilon=1e-6"},
      {"model.family=llama", "model.heads=4", "model.kv_heads=2", "model.tied=false",
       "model.rope_theta=500000"},
      {"model.family=llama", "model.rope_scaling=8", "model.rope_original_context=64", "model.context=512"},
      {"model.family=llama", "model.rope_scaling=4", "model.rope_type=linear", "model.head_dim=48"},
      {"model.family=llama", "model.rope_scaling=4", "model.rope_type=yarn", "model.rope_high_freq=32"},
      {"model.family=llama", "model.rope_scaling=4", "model.rope_type=yarn", "model.rope_attention=1.5"},
      {"model.family=llama", "model.rope_scaling=4", "model.rope_type=yarn", "model.rope_whole_limits=false"},
      {"model.family=gpt2", "model.activation=gelu"},
      {"model.family=gpt2", "model.activation=relu", "model.vocab=50257"},
      {"model.family=llama", "model.activation=gelu_pytorch_tanh", "model.attention_bias=true"},
      {"model.family=llama", "model.mlp_bias=true"},
      {"model.family=llama", "model.rope_scaling=2.5", "model.rope_type=dynamic",
       "model.rope_original_context=64"},
      {"model.family=llama", "model.head_dim=6", "model.rope_scaling=4", "model.rope_type=longrope",
       "model.rope_original_context=64", "model.rope_short_factor=1,1.05,1.5",
       "model.rope_long_factor=1.1,3,12.25"},
      {"model.family=mistral", "model.kv_heads=2", "model.sliding_window=0"},
      {"model.family=mistral", "model.sliding_window=7", "model.head_dim=6"},
      {"model.family=qwen2", "model.sliding_window=9", "model.layer_types=full*3,sliding"},
      {"model.family=qwen3", "model.head_dim=48", "model.attention_bias=true", "model.sliding_window=3"},
      {"model.family=gemma2"},
      {"model.family=gemma2", "model.attn_softcap=0", "model.final_softcap=0", "model.query_scalar=100",
       "model.layer_types=full"},
      {"model.family=gemma3", "model.layers=7", "model.rope_scaling=8", "model.rope_type=linear",
       "model.rope_local_theta=500"},
      {"model.family=phi", "model.partial_rotary=0.25", "model.tied=true"},
      {"model.family=phi3", "model.kv_heads=2", "model.sliding_window=5"},
      {"model.family=phi3", "model.head_dim=auto", "model.hidden=16", "model.heads=2",
       "model.partial_rotary=0.5", "model.rope_scaling=4", "model.rope_type=longrope",
       "model.rope_original_context=16", "model.rope_short_factor=1,1.5", "model.rope_long_factor=2,3"},
      {"model.family=olmo2", "model.attention_bias=true"},
      {"model.family=smollm3", "model.no_rope_every=3", "model.layers=7"},
      {"model.family=smollm3", "model.no_rope_every=0"},
      {"model.family=gpt_neox", "model.parallel_residual=false", "model.rope_theta=500"},
      {"model.family=llama", "model.head_dim=2", "model.rope_scaling=4", "model.rope_type=longrope",
       "model.rope_attention=1.25", "model.rope_short_factor=1.0", "model.rope_long_factor=2"}};
  for (const Words& words : recipes) {
    recipe::Resolved first = recipe_of(words);
    resolve_model(first, 137);
    const std::string config = huggingface_config(first.recipe);
    recipe::Resolved second = recipe_of({});
    adopt_config(second, config, "there/config.json");
    resolve_model(second, 137);
    EXPECT_EQ(Json::parse(huggingface_config(second.recipe)), Json::parse(config));
    EXPECT_EQ(second.origin.at("model.vocab"), "there/config.json");
    adopt_config(second, config, "there/config.json");  // a second look changes nothing
  }
}

// What transformers wrote, read and written again: the same keys say the same.
TEST(HuggingFace, WritesWhatTransformersWrote) {
  const std::string samples = LOCKSTEP_SOURCE "/tools/samples/huggingface";
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(samples)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename());
    const std::string path = entry.path().string() + "/config.json", text = base::read_file(path);
    recipe::Resolved resolved = recipe_of({"data.seq_len=8"});
    adopt_config(resolved, text, path);
    resolve_model(resolved, 40);
    Json theirs = Json::parse(text);
    const Json ours = Json::parse(huggingface_config(resolved.recipe));
    Json rope = theirs.value("rope_parameters", Json::object());
    if (rope.contains("full_attention")) rope = rope["full_attention"];  // of each kind of layer
    if (rope.contains("rope_theta")) theirs["rope_theta"] = rope["rope_theta"];
    for (const auto& [key, value] : ours.items()) {
      if (!theirs.contains(key) || theirs[key].is_null() || key.ends_with("_token_id")) continue;
      EXPECT_EQ(value, theirs[key]) << key;
      ++compared;
    }
    if (rope.value("rope_type", "default") == "default") continue;
    for (const auto& [key, value] : rope.items()) {  // newer versions name both in one object
      if (key == "rope_theta" || key == "partial_rotary_factor") continue;
      EXPECT_EQ(ours["rope_scaling"][key], value) << key;
    }
  }
  EXPECT_GT(compared, 7 * 10);
}

// Factors that do not fit the heads are refused by name, wherever they come from.
TEST(HuggingFace, FactorsMustFitTheHeads) {
  const auto says = [](const Words& more) {
    Words words = {"model.family=llama",
                   "model.head_dim=6",
                   "model.rope_scaling=4",
                   "model.rope_type=longrope",
                   "model.rope_short_factor=1,2,3",
                   "model.rope_long_factor=1,2,3"};
    words.insert(words.end(), more.begin(), more.end());
    recipe::Resolved resolved = recipe_of(words);
    try {
      resolve_model(resolved, 137);
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 128);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(says({}), "");
  EXPECT_NE(says({"model.rope_short_factor=1,2"}).find("model.rope_short_factor"), std::string::npos);
  EXPECT_NE(says({"model.rope_long_factor="}).find("model.rope_long_factor"), std::string::npos);
  EXPECT_NE(says({"model.rope_long_factor=1,0,2"}).find("model.rope_long_factor"), std::string::npos);
  EXPECT_NE(says({"model.rope_type=dynamic", "model.head_dim=2"}).find("heads wider than 2"),
            std::string::npos);
}

// Every name that the recipe takes means something.
TEST(HuggingFace, EveryActivationIsKnown) {
  for (const std::string& name : recipe::find_key("model.activation")->choices)
    EXPECT_TRUE(name == "auto" || activation_named(name)) << name;
}

struct Row {
  const char* name;
  const char* config;
  Words expected;  // "key=value"
};

TEST(HuggingFace, ReadsWhatTransformersWrites) {
  const Row rows[] = {
      {"gpt2 of the Hub",
       R"({"model_type": "gpt2", "vocab_size": 50257, "n_inner": null})",
       {"model.layers=12", "model.hidden=768", "model.heads=12", "model.ffn=3072", "model.context=1024",
        "model.vocab=50257", "model.tied=true"}},
      {"llama with the defaults left out",
       R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 64,
          "num_attention_heads": 8, "intermediate_size": 96, "rope_scaling": null})",
       {"model.family=\"llama\"", "model.kv_heads=8", "model.layers=32", "model.tied=false",
        "model.norm_epsilon=1e-06", "model.rope_theta=10000", "model.rope_scaling=0"}},
      {"rope_parameters of newer versions",
       R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 64,
          "num_attention_heads": 8, "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4096}})",
       {"model.rope_theta=500000", "model.rope_scaling=32", "model.rope_original_context=4096"}},
      {"gpt2 under the names of other models",
       R"({"model_type": "gpt2", "hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 3,
          "max_position_embeddings": 128})",
       {"model.hidden=96", "model.heads=6", "model.kv_heads=6", "model.ffn=384", "model.layers=3",
        "model.context=128", "model.vocab=50257"}},
      {"both ways to say RoPE: the older one counts",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "hidden_act": "swish",
          "rope_scaling": {"type": "llama3", "factor": 4, "low_freq_factor": 1, "high_freq_factor": 2},
          "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}, "max_position_embeddings": 128})",
       {"model.rope_theta=10000", "model.rope_scaling=4", "model.rope_high_freq=2",
        "model.rope_original_context=128", "model.vocab=32000"}},
      {"an older RoPE that says nothing",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "rope_scaling": {},
          "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}})",
       {"model.rope_theta=7", "model.rope_scaling=0"}},
      {"positions that are all stretched alike, and heads as wide as they like",
       R"({"model_type": "llama", "hidden_size": 60, "num_attention_heads": 8, "head_dim": 16,
          "rope_scaling": {"type": "linear", "factor": 2}})",
       {"model.rope_type=linear", "model.rope_scaling=2", "model.head_dim=16", "model.hidden=60"}},
      {"YaRN with its authors' limits",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "max_position_embeddings": 128,
          "rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 32}})",
       {"model.rope_type=yarn", "model.rope_scaling=4", "model.rope_low_freq=1", "model.rope_high_freq=32",
        "model.rope_attention=0", "model.rope_original_context=32"}},
      {"YaRN with an amplitude of its own",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "max_position_embeddings": 128,
          "rope_parameters": {"rope_type": "yarn", "factor": 4, "attention_factor": 1.25, "beta_fast": 8}})",
       {"model.rope_high_freq=8", "model.rope_attention=1.25", "model.rope_original_context=128"}},
      // (1 + 0.0707 ln 4) / (1 + 0.1 ln 4), as DeepSeek's models have it
      {"YaRN with amplitudes for heads and for scores",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "max_position_embeddings": 128,
          "rope_parameters": {"rope_type": "yarn", "factor": 4, "mscale": 0.707, "mscale_all_dim": 1.0}})",
       {"model.rope_attention=0.964326914892074"}},
      {"YaRN whose limits are not rounded, as gpt-oss has it",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "max_position_embeddings": 128,
          "rope_scaling": {"rope_type": "yarn", "factor": 4, "truncate": false}})",
       {"model.rope_whole_limits=false", "model.rope_scaling=4"}},
      {"another activation and biases",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "hidden_act": "relu2",
          "attention_bias": true, "mlp_bias": true})",
       {"model.activation=relu2", "model.attention_bias=true", "model.mlp_bias=true"}},
      {"names of the usual activation leave the recipe alone",
       R"({"model_type": "gpt2", "activation_function": "gelu_fast"})",
       {"model.activation=auto"}},
      {"dynamic scaling begins at the model's length, whatever else is said",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "max_position_embeddings": 128,
          "rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 16}})",
       {"model.rope_type=dynamic", "model.rope_scaling=2", "model.rope_original_context=128"}},
      {"longrope with the factor that its lengths say",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 16, "max_position_embeddings": 128,
          "original_max_position_embeddings": 32, "rope_scaling": {"type": "longrope",
          "short_factor": [1.0, 1.5], "long_factor": [2, 4.25]}})",
       {"model.rope_type=longrope", "model.rope_scaling=4", "model.rope_original_context=32",
        "model.rope_short_factor=\"1,1.5\"", "model.rope_long_factor=\"2,4.25\"", "model.rope_attention=0"}},
      {"Mistral 7B of the Hub",
       R"({"model_type": "mistral", "sliding_window": 4096, "num_key_value_heads": 8, "rms_norm_eps": 1e-05})",
       {"model.family=mistral", "model.sliding_window=4096", "model.kv_heads=8", "model.ffn=14336"}},
      {"a Mistral without a window",
       R"({"model_type": "mistral", "sliding_window": null, "head_dim": null})",
       {"model.sliding_window=0", "model.head_dim=128"}},
      {"Qwen2.5 of the Hub, whose window is off",
       R"({"model_type": "qwen2", "sliding_window": 131072, "use_sliding_window": false,
          "max_window_layers": 21, "num_hidden_layers": 24})",
       {"model.sliding_window=0", "model.layer_types=", "model.layers=24"}},
      {"a Qwen2 with windows in its last layers",
       R"({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": true, "max_window_layers": 3,
          "num_hidden_layers": 5})",
       {"model.sliding_window=64", "model.layer_types=full*3,sliding*2"}},
      {"Gemma 2 of the Hub",
       R"({"model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
          "query_pre_attn_scalar": 224})",
       {"model.layer_types=sliding,full", "model.sliding_window=4096", "model.attn_softcap=50",
        "model.final_softcap=30", "model.query_scalar=224", "model.head_dim=256", "model.tied=true"}},
      {"Gemma 3 of the Hub, as older versions wrote it",
       R"({"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 6,
          "rope_theta": 1000000, "rope_local_base_freq": 10000, "rope_scaling": {"rope_type": "linear", "factor": 8},
          "attn_logit_softcapping": null, "final_logit_softcapping": null, "use_bidirectional_attention": false})",
       {"model.family=gemma3", "model.layer_types=sliding*5,full", "model.sliding_window=512",
        "model.rope_theta=1000000", "model.rope_local_theta=10000", "model.rope_scaling=8",
        "model.rope_type=linear", "model.final_softcap=0"}},
      {"Phi-3 with its old name of LongRoPE",
       R"({"model_type": "phi3", "hidden_size": 64, "num_attention_heads": 8, "max_position_embeddings": 131072,
          "original_max_position_embeddings": 4096, "rope_scaling": {"type": "su",
          "short_factor": [1, 1, 1, 2], "long_factor": [1, 2, 3, 4]}, "sliding_window": 262144})",
       {"model.rope_type=longrope", "model.rope_scaling=32", "model.rope_original_context=4096",
        "model.sliding_window=262144", "model.partial_rotary=1"}},
      {"Pythia of the Hub",
       R"({"model_type": "gpt_neox", "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true,
          "hidden_size": 768, "num_attention_heads": 12})",
       {"model.partial_rotary=0.25", "model.attention_bias=true", "model.parallel_residual=true",
        "model.activation=auto", "model.kv_heads=12"}},
      {"the first context beside the scaling and in it",
       R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8,
          "original_max_position_embeddings": 16, "rope_parameters": {"rope_type": "llama3", "factor": 4,
          "low_freq_factor": 1, "high_freq_factor": 2, "original_max_position_embeddings": 32}})",
       {"model.rope_original_context=16"}},
  };
  for (const Row& row : rows) {
    recipe::Resolved resolved = recipe_of({});
    adopt_config(resolved, row.config, "c");
    for (const std::string& word : row.expected) {
      const std::string key = word.substr(0, word.find('='));
      recipe::Recipe wanted;
      recipe::set_value(wanted, key, word.substr(word.find('=') + 1));
      EXPECT_EQ(recipe::value_text(*recipe::find_key(key), resolved.recipe),
                recipe::value_text(*recipe::find_key(key), wanted))
          << row.name;
    }
  }
}

int refused(const Words& words, const std::string& config, const std::string& says) {
  recipe::Resolved resolved = recipe_of(words);
  try {
    adopt_config(resolved, config, "c/config.json");
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    return error.number();
  }
  return 0;
}

TEST(HuggingFace, OtherModelsAreRefused) {
  const std::string llama =
      R"("model_type": "llama", "vocab_size": 8, "hidden_size": 64, "num_attention_heads": 8)";
  const std::pair<std::string, const char*> rows[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{}", "model_type (missing)"},
      {R"({"model_type": "mamba"})", "\"mamba\" is not supported; supported are gpt2, llama, mistral, qwen2"},
      {R"({"model_type": "qwen2", "layer_types": ["chunked_attention"], "num_hidden_layers": 1})",
       "layer_types names \"chunked_attention\""},
      {R"({"model_type": "qwen3", "layer_types": ["full_attention"], "num_hidden_layers": 2})",
       "layer_types names 1 layers, and there are 2"},
      {R"({"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 8, "head_dim": 16})", "head_dim"},
      {R"({"model_type": "gemma2", "use_bidirectional_attention": true})",
       "use_bidirectional_attention is true"},
      {R"({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0})", "attn_logit_softcapping is 50.0"},
      {R"({"model_type": "gemma3_text", "rope_parameters": {"sliding_attention": {"rope_type": "linear"}}})",
       "sliding_attention stretch positions"},
      {R"({"model_type": "phi", "qk_layernorm": true})", "qk_layernorm is true"},
      {R"({"model_type": "phi3", "rope_scaling": {"type": "linear", "factor": 2}})", "a phi3 takes longrope"},
      {R"({"model_type": "olmo2", "clip_qkv": 8})", "clip_qkv is 8"},
      {R"({"model_type": "smollm3", "num_hidden_layers": 3, "no_rope_layers": [0, 1, 1]})", "no_rope_layers"},
      {R"({"model_type": "smollm3", "use_sliding_window": true, "sliding_window": 8})", "use_sliding_window"},
      {R"({"model_type": 3})", "\"model_type\" is not a string"},
      {R"({"model_type": "gpt2", "vocab_size": -1})", "\"vocab_size\" is not a size"},
      {R"({"model_type": "gpt2", "vocab_size": 1e300})", "\"vocab_size\" is not a size"},
      {R"({"model_type": "gpt2", "vocab_size": 8, "activation_function": "mish"})",
       "activation_function \"mish\" is not supported; supported are gelu,"},
      {R"({"model_type": "gpt2", "vocab_size": 8, "scale_attn_by_inverse_layer_idx": true})",
       "inverse_layer_idx"},
      {"{" + llama + R"(, "attention_bias": 1})", "\"attention_bias\" is neither true nor false"},
      {"{" + llama + R"(, "hidden_act": "tanh"})", "hidden_act \"tanh\" is not supported"},
      {"{" + llama + R"(, "rope_scaling": {"type": "longrope", "factor": 2, "long_factor": [1]}})",
       "\"short_factor\" is missing"},
      {"{" + llama +
           R"(, "rope_scaling": {"type": "longrope", "short_factor": [1, -1], "long_factor": [1]}})",
       "\"short_factor\" is not a list"},
      {"{" + llama + R"(, "rope_scaling": {"type": "longrope", "short_factor": "1", "long_factor": [1]}})",
       "\"short_factor\" is not a list"},
      {"{" + llama + R"(, "head_dim": -16})", "\"head_dim\" is not a size"},
      {"{" + llama + R"(, "rope_scaling": {"type": "su", "factor": 2}})",
       "\"su\" is not supported; supported are llama3, linear, yarn, dynamic, longrope"},
      {"{" + llama + R"(, "rope_scaling": {"type": "dynamic"}})", "\"factor\" is missing"},
      {"{" + llama + R"(, "rope_scaling": {"type": "yarn", "factor": 2, "truncate": 1}})", "truncate"},
      {"{" + llama + R"(, "rope_scaling": {"type": "linear"}})", "\"factor\" is missing"},
      {"{" + llama + R"(, "rope_scaling": {"type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4}})",
       "\"factor\" is missing"},
      {"{" + llama +
           R"(, "rope_scaling": {"type": "llama3", "factor": 0, "low_freq_factor": 1, "high_freq_factor": 4}})",
       "\"factor\" is not a positive number"},
      {"{" + llama + R"(, "partial_rotary_factor": 0.5})", "partial_rotary_factor"},
      {"{" + llama + R"(, "rms_norm_eps": -1})", "\"rms_norm_eps\" is not a positive number"},
      {"{" + llama + R"(, "quantization_config": {"bits": 4}})", "quantization_config"},
      {R"({"model_type": "gpt2", "n_head": 4, "num_attention_heads": 12})",
       "\"n_head\" is 4, but \"num_attention_heads\" is 12"},
      {"{" + llama + R"(, "rope_scaling": 3})", "\"rope_scaling\" is not an object"},
  };
  for (const auto& [config, says] : rows) EXPECT_EQ(refused({}, config, says), 177) << config;
}

TEST(HuggingFace, ContradictionsAreNamed) {
  const std::string config =
      R"({"model_type": "gpt2", "vocab_size": 64, "n_embd": 64, "n_layer": 2, "n_head": 4})";
  EXPECT_EQ(refused({"model.layers=3"}, config, "model.layers = 3 (command line), but c/config.json says 2"),
            178);
  EXPECT_EQ(refused({"model.layers=4"}, config, "model.layers = 4"), 178);  // the default, but said aloud
  EXPECT_EQ(refused({"model.family=llama"}, config, "model.family"), 178);
  EXPECT_EQ(refused({"model.context=64"}, config, "model.context"), 178);
  EXPECT_EQ(refused({"model.preset=124m"}, config, "model.preset = \"124m\" means"), 178);
  EXPECT_EQ(refused({"model.layers=2", "model.vocab=64", "model.dropout=0.1"}, config, ""), 0);
  EXPECT_EQ(refused({"model.activation=gelu_fast"}, config, ""), 0);  // another name of the same
  EXPECT_EQ(refused({"model.activation=gelu"}, config, "model.activation = \"gelu\" (command line)"), 178);
  // A llama has no table of positions: a shorter one is no contradiction.
  EXPECT_EQ(
      refused({"model.family=llama", "model.context=64"},
              R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 64, "num_attention_heads": 8})", ""),
      0);
}

TEST(HuggingFace, DataOfOtherTokensIsRefused) {
  const auto refusal = [](const Words& words, int64_t vocab, int64_t data_vocab) {
    recipe::Resolved resolved = recipe_of(words);
    resolved.recipe.model.from = "there";
    adopt_config(resolved, R"({"model_type": "gpt2", "vocab_size": )" + std::to_string(vocab) + "}",
                 "there/config.json");
    try {
      check_vocabulary(resolved, {.vocab = data_vocab,
                                  .describe = "some data",
                                  .of_any_tokenizer = resolved.recipe.data.kind == "tokens"});
    } catch (const base::ConfigError& error) {
      return error.number();
    }
    return 0;
  };
  EXPECT_EQ(refusal({}, 50257, 137), 179);
  EXPECT_EQ(refusal({}, 192, 137), 0);  // the data's, padded
  EXPECT_EQ(refusal({}, 137, 137), 0);
  EXPECT_EQ(refusal({"model.vocab=50257"}, 50257, 137), 0);  // the user says that they are the same
  EXPECT_EQ(refusal({"data.kind=tokens"}, 50257, 40000), 0);
  EXPECT_EQ(refusal({"data.kind=tokens"}, 50257, 50258), 179);
}

}  // namespace
}  // namespace lockstep::model
