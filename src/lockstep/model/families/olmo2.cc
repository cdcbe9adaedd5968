// OLMo 2: a Llama that norms what its maps give and not what they take, and queries and keys over all heads
// at once.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/llama.h"
#include "lockstep/model/families/rotary.h"

namespace lockstep::model {

namespace {

constexpr UsualSizes kUsual{.vocab = 50304, .epsilon = 1e-5};

Model build(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  return build_llama_like(recipe, compute, parts, [&](int64_t, DecoderLayer& layer) {
    layer.qkv_bias = layer.out_bias = recipe.model.attention_bias;
    layer.attention_norm = layer.ffn_norm = "";
    layer.attention_post_norm = "post_attention_layernorm";
    layer.ffn_post_norm = "post_feedforward_layernorm";
    layer.q_norm = "self_attn.q_norm";
    layer.k_norm = "self_attn.k_norm";
    layer.whole_qk_norm = true;
  });
}

ConfigSettings read_config(const ConfigReader& c) {
  c.require_none("clip_qkv");
  ConfigSettings settings = read_sizes(c, kUsual);
  settings.push_back({"model.attention_bias", toml(c.truth("attention_bias", false))});
  read_rotary(c, c.size("max_position_embeddings", kUsual.context), settings);
  return settings;
}

void write_config(const recipe::Recipe::Model& m, ConfigWriter& c) {
  write_sizes(m, kUsual, c);
  c["max_position_embeddings"] = written_positions(m);
  c["attention_bias"] = m.attention_bias;
  write_rotary(m, c);
}

}  // namespace

Family olmo2_family() {
  return {.name = "olmo2",
          .describe = "OLMo 2: a Llama with norms behind its maps, and of all of q and k",
          .reads = keys_of({attention_keys(), rotary_keys(), {"model.attention_bias"}}),
          .defaults = {.ffn = gated_ffn, .activation = "silu", .keys = {{"model.tied", "false"}}},
          .presets = {{"1b",
                       {{"model.layers", "16"},
                        {"model.hidden", "2048"},
                        {"model.heads", "16"},
                        {"model.ffn", "8192"},
                        {"model.vocab", "100352"},
                        {"model.context", "4096"},
                        {"model.tied", "false"},
                        {"model.norm_epsilon", "1e-6"},
                        {"model.rope_theta", "500000.0"}}}},
          .heads = Heads{.grouped = true},
          .check = [](const recipe::Recipe& recipe) { check_rotary(recipe.model); },
          .build = build,
          .fp8_products = attention_products,
          .huggingface = llama_like("olmo2", "Olmo2ForCausalLM", read_config, write_config)};
}

}  // namespace lockstep::model
