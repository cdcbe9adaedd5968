// GPT-NeoX and Pythia: LayerNorm, attention and feed-forward part side by side with a norm each, rotary
// positions on a quarter of each head, queries, keys and values of a head together in one map.
#include "lockstep/model/families/decoder.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/language.h"
#include "lockstep/model/families/rotary.h"

namespace lockstep::model {

namespace {

using ModelKeys = recipe::Recipe::Model;

constexpr const char* kTokens = "gpt_neox.embed_in";
constexpr const char* kHead = "embed_out";
constexpr UsualSizes kUsual{.hidden = 6144,
                            .heads = 64,
                            .layers = 44,
                            .ffn = 24576,
                            .context = 2048,
                            .vocab = 50432,
                            .epsilon = 1e-5,
                            .activation = "gelu",
                            .epsilon_key = "layer_norm_eps"};

Model build(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  const ModelKeys& m = recipe.model;
  const auto layer = [&](int64_t i) {
    return decoder_layer({recipe, compute, parts, i}, {.prefix = "gpt_neox.layers." + std::to_string(i) + ".",
                                                       .norm = kernels::NormKind::layer,
                                                       .attention_norm = "input_layernorm",
                                                       .ffn_norm = "post_attention_layernorm",
                                                       .qkv = {"attention.query_key_value"},
                                                       .interleaved = true,
                                                       .qkv_bias = m.attention_bias,
                                                       .out = "attention.dense",
                                                       .out_bias = m.attention_bias,
                                                       .up = {"mlp.dense_h_to_4h"},
                                                       .gated = false,
                                                       .down = "mlp.dense_4h_to_h",
                                                       .ffn_bias = true,
                                                       .parallel = m.parallel_residual,
                                                       .rope = rope_options(m)});
  };
  return build_language_model(recipe, compute, parts,
                              {.tokens = kTokens,
                               .norm = last_norm(m, kernels::NormKind::layer, "gpt_neox.final_layer_norm"),
                               .head = kHead,
                               .layer = layer});
}

ConfigSettings read_config(const ConfigReader& c) {
  ConfigSettings settings = read_sizes(c, kUsual);
  settings.push_back({"model.attention_bias", toml(c.truth("attention_bias", true))});
  settings.push_back({"model.parallel_residual", toml(c.truth("use_parallel_residual", true))});
  read_rotary(c, c.size("max_position_embeddings", kUsual.context), settings,
              {.partial = 0.25, .theta_key = "rotary_emb_base", .partial_key = "rotary_pct"});
  return settings;
}

void write_config(const ModelKeys& m, ConfigWriter& c) {
  write_sizes(m, kUsual, c);
  c["max_position_embeddings"] = written_positions(m);
  c["attention_bias"] = m.attention_bias;
  c["use_parallel_residual"] = m.parallel_residual;
  c["rotary_pct"] = m.partial_rotary;
  c["rotary_emb_base"] = m.rope_theta;
  c["hidden_dropout"] = m.dropout;
  write_rotary(m, c);
}

}  // namespace

Family gpt_neox_family() {
  return {.name = "gpt_neox",
          .describe = "GPT-NeoX and Pythia: LayerNorm, halves side by side, partial rotary positions",
          .reads = keys_of({attention_keys(),
                            rotary_keys(),
                            {"model.partial_rotary", "model.attention_bias", "model.parallel_residual"}}),
          .defaults = {.ffn = [](const ModelKeys& m) { return 4 * m.hidden; },
                       .activation = "gelu",
                       .keys = {{"model.tied", "false"},
                                {"model.attention_bias", "true"},
                                {"model.partial_rotary", "0.25"}}},
          .presets = {{"160m",
                       {{"model.layers", "12"},
                        {"model.hidden", "768"},
                        {"model.heads", "12"},
                        {"model.ffn", "3072"},
                        {"model.vocab", "50304"},
                        {"model.context", "2048"},
                        {"model.tied", "false"},
                        {"model.attention_bias", "true"},
                        {"model.partial_rotary", "0.25"}}}},
          .heads = Heads{},
          .check = [](const recipe::Recipe& recipe) { check_rotary(recipe.model); },
          .build = build,
          .fp8_products = attention_products,
          .huggingface = HuggingFace{.model_types = {"gpt_neox"},
                                     .architecture = "GPTNeoXForCausalLM",
                                     .tokens = kTokens,
                                     .head = kHead,
                                     .other_names = {{"lm_head.weight", "embed_out.weight"}},
                                     .read = read_config,
                                     .write = write_config}};
}

}  // namespace lockstep::model
