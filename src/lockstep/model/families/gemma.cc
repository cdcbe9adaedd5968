// Gemma 2 and 3: norms before and behind every half of a layer with weights around zero, a scaled embedding,
// GeGLU, windows in turns. Gemma 2 caps scores and logits softly; Gemma 3 norms the queries and keys of each
// head instead, and its windowed layers have rotary positions of their own.
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/llama.h"
#include "lockstep/model/families/rotary.h"

namespace lockstep::model {

namespace {

using ModelKeys = recipe::Recipe::Model;

constexpr UsualSizes kGemma2{.hidden = 2304,
                             .heads = 8,
                             .layers = 26,
                             .ffn = 9216,
                             .context = 8192,
                             .vocab = 256000,
                             .kv_heads = 4,
                             .head_dim = 256,
                             .tied = true,
                             .activation_key = "hidden_activation",
                             .activation = "gelu_pytorch_tanh"};
constexpr UsualSizes gemma3_sizes() {
  UsualSizes usual = kGemma2;
  usual.context = 131072;
  usual.vocab = 262208;
  return usual;
}
constexpr double kGlobalTheta = 1e6, kLocalTheta = 1e4;

RopeOptions local_rope(const ModelKeys& m) {
  ModelKeys local = m;
  local.rope_theta = m.rope_local_theta;
  local.rope_scaling = 0;
  RopeOptions rope = rope_options(local);
  rope.table = "local rope table";
  return rope;
}

Model build_gemma(const recipe::Recipe& recipe, DType compute, const Parts& parts, bool third) {
  const ModelKeys& m = recipe.model;
  return build_llama_like(recipe, compute, parts,
                          [&](int64_t i, DecoderLayer& layer) {
                            layer.qkv_bias = layer.out_bias = m.attention_bias;
                            layer.attention_post_norm = "post_attention_layernorm";
                            layer.ffn_norm = "pre_feedforward_layernorm";
                            layer.ffn_post_norm = "post_feedforward_layernorm";
                            if (!third) return;
                            layer.q_norm = "self_attn.q_norm";
                            layer.k_norm = "self_attn.k_norm";
                            if (slides(m, i)) layer.rope = local_rope(m);
                          },
                          {.norm_offset = 1, .embedding_scale = std::sqrt(static_cast<double>(m.hidden))});
}

// `every`: without layer_types, each so-many-th layer has no window.
ConfigSettings read_config(const ConfigReader& c, const UsualSizes& usual, int64_t every) {
  c.require("use_bidirectional_attention", false);
  ConfigSettings settings = read_sizes(c, usual);
  const std::string types = c.has("layer_types")
                                ? read_layer_types(c, c.size("num_hidden_layers", usual.layers))
                            : every > 1 ? "sliding" + (every > 2 ? "*" + toml(every - 1) : "") + ",full"
                                        : "full";
  const bool said = c.names("sliding_window");
  const int64_t window = types == "full" ? 0 : c.size("sliding_window", said ? 0 : 4096);
  settings.push_back({"model.sliding_window", toml(window)});
  settings.push_back({"model.layer_types", window > 0 && types != "sliding" ? types : ""});
  settings.push_back({"model.attention_bias", toml(c.truth("attention_bias", false))});
  settings.push_back({"model.query_scalar", toml(c.number("query_pre_attn_scalar", 256))});
  return settings;
}

double cap(const ConfigReader& c, const char* key, double usual) {
  return c.names(key) ? c.number(key, 0) : usual;
}

ConfigSettings read_gemma2(const ConfigReader& c) {
  ConfigSettings settings = read_config(c, kGemma2, 2);
  settings.push_back({"model.attn_softcap", toml(cap(c, "attn_logit_softcapping", 50))});
  settings.push_back({"model.final_softcap", toml(cap(c, "final_logit_softcapping", 30))});
  read_rotary(c, c.size("max_position_embeddings", kGemma2.context), settings);
  return settings;
}

// Newer files have rope_parameters for each kind of layer, older ones rope_local_base_freq.
ConfigSettings read_gemma3(const ConfigReader& c) {
  constexpr UsualSizes kUsual = gemma3_sizes();
  c.require_none("attn_logit_softcapping");  // transformers reads it and does nothing with it
  const int64_t every = c.size("sliding_window_pattern", c.size("_sliding_window_pattern", 6));
  ConfigSettings settings = read_config(c, kUsual, every);
  settings.push_back({"model.final_softcap", toml(cap(c, "final_logit_softcapping", 0))});
  const ConfigReader all = c.part("rope_parameters"), local = all.part("sliding_attention");
  if (local.text("rope_type", "default") != "default")
    c.refuse("rope_parameters of sliding_attention stretch positions");
  settings.push_back({"model.rope_local_theta",
                      toml(local.number("rope_theta", c.number("rope_local_base_freq", kLocalTheta)))});
  const int64_t context = c.size("max_position_embeddings", kUsual.context);
  const ConfigReader rope =
      c.holds_something("rope_scaling") ? c.part("rope_scaling") : all.part("full_attention");
  read_rotary(rope, c, context, settings, {.theta = kGlobalTheta});
  return settings;
}

void write_config(const ModelKeys& m, ConfigWriter& c, const UsualSizes& usual) {
  const auto or_null = [](double n) { return n > 0 ? nlohmann::json(n) : nlohmann::json(); };
  write_sizes(m, usual, c);
  c["head_dim"] = m.head_dim.value;
  c["max_position_embeddings"] = written_positions(m);
  c["attention_bias"] = m.attention_bias;
  c["sliding_window"] = m.sliding_window > 0 ? m.sliding_window : 4096;  // null is nothing that it takes
  c["layer_types"] = written_layer_types(m);
  c["query_pre_attn_scalar"] =
      static_cast<int64_t>(m.query_scalar > 0 ? m.query_scalar : static_cast<double>(m.head_dim.value));
  c["attn_logit_softcapping"] = or_null(m.attn_softcap);
  c["final_logit_softcapping"] = or_null(m.final_softcap);
  write_rotary(m, c);
}

void write_gemma2(const ModelKeys& m, ConfigWriter& c) { write_config(m, c, kGemma2); }

void write_gemma3(const ModelKeys& m, ConfigWriter& c) {
  write_config(m, c, gemma3_sizes());
  c["rope_local_base_freq"] = m.rope_local_theta;
}

void check(const recipe::Recipe& recipe) {
  const ModelKeys& m = recipe.model;
  check_rotary(m);
  if (m.query_scalar != std::floor(m.query_scalar)) {
    throw base::ConfigError(124,
                            "model.query_scalar: transformers takes an integer (query_pre_attn_scalar)");
  }
}

Preset preset(const char* name, KeyValues keys) {
  for (const auto& [key, value] : KeyValues{{"model.head_dim", "256"},
                                            {"model.tied", "true"},
                                            {"model.norm_epsilon", "1e-6"},
                                            {"model.query_scalar", "256.0"}})
    keys.push_back({key, value});
  return {name, std::move(keys)};
}

std::vector<std::string> keys() {
  return keys_of({attention_keys(),
                  rotary_keys(),
                  window_keys(),
                  {"model.attention_bias", "model.final_softcap", "model.query_scalar"}});
}

}  // namespace

Family gemma2_family() {
  return {.name = "gemma2",
          .describe = "Gemma 2: norms on both sides, soft caps, a window in every other layer, GeGLU",
          .reads = keys_of({keys(), {"model.attn_softcap"}}),
          .defaults = {.ffn = gated_ffn,
                       .activation = "gelu_pytorch_tanh",
                       .keys = {{"model.norm_epsilon", "1e-6"},
                                {"model.sliding_window", "4096"},
                                {"model.layer_types", "sliding,full"},
                                {"model.attn_softcap", "50.0"},
                                {"model.final_softcap", "30.0"}}},
          .presets = {preset("2b", {{"model.layers", "26"},
                                    {"model.hidden", "2304"},
                                    {"model.heads", "8"},
                                    {"model.kv_heads", "4"},
                                    {"model.ffn", "9216"},
                                    {"model.vocab", "256000"},
                                    {"model.context", "8192"}})},
          .heads = Heads{.grouped = true, .own_width = true},
          .check = check,
          .build = [](const recipe::Recipe& recipe, DType compute,
                      const Parts& parts) { return build_gemma(recipe, compute, parts, false); },
          .fp8_products = attention_products,
          .huggingface = llama_like("gemma2", "Gemma2ForCausalLM", read_gemma2, write_gemma2)};
}

Family gemma3_family() {
  return {
      .name = "gemma3",
      .describe = "Gemma 3 (text): norms on both sides and of q and k, windows in five of six layers, GeGLU",
      .reads = keys_of({keys(), {"model.rope_local_theta"}}),
      .defaults = {.ffn = gated_ffn,
                   .activation = "gelu_pytorch_tanh",
                   .keys = {{"model.norm_epsilon", "1e-6"},
                            {"model.sliding_window", "512"},
                            {"model.layer_types", "sliding*5,full"},
                            {"model.rope_theta", "1000000.0"}}},
      .presets = {preset("1b", {{"model.layers", "26"},
                                {"model.hidden", "1152"},
                                {"model.heads", "4"},
                                {"model.kv_heads", "1"},
                                {"model.ffn", "6912"},
                                {"model.vocab", "262144"},
                                {"model.context", "32768"},
                                {"model.rope_theta", "1000000.0"}})},
      .heads = Heads{.grouped = true, .own_width = true},
      .check = check,
      .build = [](const recipe::Recipe& recipe, DType compute,
                  const Parts& parts) { return build_gemma(recipe, compute, parts, true); },
      .fp8_products = attention_products,
      .huggingface = llama_like("gemma3_text", "Gemma3ForCausalLM", read_gemma3, write_gemma3)};
}

}  // namespace lockstep::model
