// Llama: rotary positions, RMSNorm, grouped key and value heads, a gated feed-forward part (SwiGLU), biases
// where asked.
#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/round.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/language.h"
#include "lockstep/model/families/rotary.h"
#include "lockstep/model/segments/norm_linear.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

constexpr const char* kTokens = "model.embed_tokens";
constexpr const char* kHead = "lm_head";

struct Sizes {
  const recipe::Recipe::Model& m;
  DType type;
  int64_t head_dim;
  float std, dropout;
  Parts parts;
};

NormOptions norm(const Sizes& s, std::string name, bool adds = true) {
  return {kernels::NormKind::rms, s.m.hidden, static_cast<float>(s.m.norm_epsilon), std::move(name), adds};
}

Block layer(const Sizes& s, int64_t i, const std::optional<Fp8Products>& fp8) {
  const std::string name = fmt::format("model.layers.{}.", i);
  const int64_t hidden = s.m.hidden, q = s.m.heads * s.head_dim, kv = s.m.kv_heads.value * s.head_dim,
                ffn = s.m.ffn.value;
  const float residual_std = s.std / std::sqrt(2.0f * static_cast<float>(s.m.layers));
  const auto site = static_cast<uint32_t>(1 + 2 * i);
  std::vector<std::unique_ptr<Segment>> segments;
  add_norm_linear(
      segments,
      {.segment = "qkv",
       .output = "qkv",
       .norm = norm(s, name + "input_layernorm", i > 0),
       .map = {.in = hidden, .out = q + 2 * kv, .bias = s.m.attention_bias, .type = s.type, .fp8 = fp8},
       .weights = {{name + "self_attn.q_proj", q},
                   {name + "self_attn.k_proj", kv},
                   {name + "self_attn.v_proj", kv}},
       .rope = rope_options(s.m),
       .init_std = s.std,
       .parts = s.parts,
       .columns = {q, kv, kv}});
  segments.push_back(
      make_attention({s.type, s.m.heads, s.m.kv_heads.value, s.head_dim, rope_options(s.m), s.parts}));
  segments.push_back(make_projection(
      {.segment = "out",
       .input = "context",
       .name = name + "self_attn.o_proj",
       .map = {.in = q, .out = hidden, .bias = s.m.attention_bias, .type = s.type, .fp8 = fp8},
       .dropout = {s.dropout, site},
       .init_std = residual_std,
       .parts = s.parts}));
  add_norm_linear(segments, {.segment = "up",
                             .output = "act",
                             .norm = norm(s, name + "post_attention_layernorm"),
                             .map = {.in = hidden,
                                     .out = 2 * ffn,
                                     .bias = s.m.mlp_bias,
                                     .type = s.type,
                                     .fp8 = fp8,
                                     .curve = activation_of(s.m)},
                             .weights = {{name + "mlp.gate_proj", ffn}, {name + "mlp.up_proj", ffn}},
                             .activation = Activation::gated,
                             .init_std = s.std,
                             .parts = s.parts});
  segments.push_back(
      make_projection({.segment = "down",
                       .input = "act",
                       .name = name + "mlp.down_proj",
                       .map = {.in = ffn, .out = hidden, .bias = s.m.mlp_bias, .type = s.type, .fp8 = fp8},
                       .takes_amax = true,
                       .dropout = {s.dropout, site + 1},
                       .init_std = residual_std,
                       .parts = s.parts}));
  return {fmt::format("layer {}", i), std::move(segments)};
}

Model build(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  const auto& m = recipe.model;
  const Sizes s{
      m, compute, m.head_dim.value, static_cast<float>(m.init_std), static_cast<float>(m.dropout), parts};
  return build_language_model(recipe, compute, parts,
                              {.tokens = kTokens,
                               .positions = "",
                               .norm = norm(s, "model.norm", m.layers > 0),
                               .head = kHead,
                               .layer = [&](int64_t i) { return layer(s, i, fp8_of_layer(recipe, i)); }});
}

Preset preset(const char* name, int layers, int hidden, int heads, int ffn, bool tied, int scaling) {
  return {name,
          {{"model.layers", std::to_string(layers)},
           {"model.hidden", std::to_string(hidden)},
           {"model.heads", std::to_string(heads)},
           {"model.kv_heads", "8"},
           {"model.ffn", std::to_string(ffn)},
           {"model.vocab", "128256"},
           {"model.tied", tied ? "true" : "false"},
           {"model.context", "8192"},
           {"model.rope_theta", "500000.0"},
           {"model.rope_scaling", std::to_string(scaling) + ".0"}}};
}

ConfigSettings read_config(const ConfigReader& c) {
  const int64_t hidden = c.size("hidden_size", 4096), heads = c.size("num_attention_heads", 32);
  const int64_t context = c.size("max_position_embeddings", 2048);
  ConfigSettings settings = {{"model.layers", toml(c.size("num_hidden_layers", 32))},
                             {"model.hidden", toml(hidden)},
                             {"model.heads", toml(heads)},
                             {"model.kv_heads", toml(c.size("num_key_value_heads", heads))},
                             {"model.head_dim", toml(c.size("head_dim", hidden / heads))},
                             {"model.ffn", toml(c.size("intermediate_size", 11008))},
                             {"model.context", toml(context), true},
                             {"model.norm_epsilon", toml(c.number("rms_norm_eps", 1e-6))},
                             {"model.tied", toml(c.truth("tie_word_embeddings", false))},
                             {"model.activation", c.activation("hidden_act", "silu")},
                             {"model.attention_bias", toml(c.truth("attention_bias", false))},
                             {"model.mlp_bias", toml(c.truth("mlp_bias", false))},
                             {"model.vocab", toml(c.size("vocab_size", 32000))}};
  read_rotary(c, context, settings);
  return settings;
}

void write_config(const recipe::Recipe::Model& m, ConfigWriter& c) {
  c["hidden_act"] = activation_name(m);
  c["hidden_size"] = m.hidden;
  c["num_hidden_layers"] = m.layers;
  c["num_attention_heads"] = m.heads;
  c["num_key_value_heads"] = m.kv_heads.value;
  c["head_dim"] = m.head_dim.value;
  c["intermediate_size"] = m.ffn.value;
  c["max_position_embeddings"] = written_positions(m);
  c["rms_norm_eps"] = m.norm_epsilon;
  c["attention_bias"] = m.attention_bias;
  c["mlp_bias"] = m.mlp_bias;
  write_rotary(m, c);
}

std::vector<std::string> keys() {
  std::vector<std::string> all = {"model.attention_bias", "model.mlp_bias"};
  for (const auto& some : {attention_keys(), rotary_keys()}) all.insert(all.end(), some.begin(), some.end());
  return all;
}

// 8/3 of the width, up to a multiple of 64.
int64_t usual_ffn(const recipe::Recipe::Model& m) { return base::round_up(m.hidden * 8 / 3, 64); }

}  // namespace

Family llama_family() {
  return {.name = "llama",
          .describe = "Llama: RoPE, RMSNorm, grouped-query attention, SwiGLU",
          .reads = keys(),
          .defaults = {.ffn = usual_ffn, .activation = "silu"},
          .presets = {preset("1b", 16, 2048, 32, 8192, true, 32), preset("3b", 28, 3072, 24, 8192, true, 32),
                      preset("8b", 32, 4096, 32, 14336, false, 8)},
          .heads = Heads{.grouped = true, .own_width = true},
          .check = [](const recipe::Recipe& recipe) { check_rotary(recipe.model); },
          .build = build,
          .fp8_products = attention_products,
          .huggingface = HuggingFace{.model_types = {"llama"},
                                     .architecture = "LlamaForCausalLM",
                                     .tokens = kTokens,
                                     .head = kHead,
                                     .read = read_config,
                                     .write = write_config}};
}

}  // namespace lockstep::model
