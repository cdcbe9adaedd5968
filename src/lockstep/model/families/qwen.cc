// Qwen 2 and 2.5: a Llama with biases on queries, keys and values. Qwen 3: without them, and with a norm of
// each head's queries and keys. Both can give some of their layers a sliding window.
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/llama.h"
#include "lockstep/model/families/rotary.h"

namespace lockstep::model {

namespace {

constexpr UsualSizes kUsual{.ffn = 22016, .context = 32768, .vocab = 151936, .kv_heads = 32};

Model build_qwen2(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  return build_llama_like(recipe, compute, parts,
                          [](int64_t, DecoderLayer& layer) { layer.qkv_bias = true; });
}

Model build_qwen3(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  return build_llama_like(recipe, compute, parts, [&](int64_t, DecoderLayer& layer) {
    layer.qkv_bias = layer.out_bias = recipe.model.attention_bias;
    layer.q_norm = "self_attn.q_norm";
    layer.k_norm = "self_attn.k_norm";
  });
}

// Without layer_types, those from max_window_layers on have the window.
std::string layer_types(const ConfigReader& c, int64_t layers) {
  if (c.has("layer_types")) return read_layer_types(c, layers);
  const int64_t full = c.has("max_window_layers") ? c.counted("max_window_layers") : 28;
  if (full == 0) return "sliding";
  return full < layers ? "full*" + toml(full) + ",sliding*" + toml(layers - full) : "full";
}

ConfigSettings read_config(const ConfigReader& c, const UsualSizes& usual) {
  ConfigSettings settings = read_sizes(c, usual);
  const std::string types = layer_types(c, c.size("num_hidden_layers", usual.layers));
  const bool said = c.names("sliding_window");
  const int64_t window = c.truth("use_sliding_window", false) ? c.size("sliding_window", said ? 0 : 4096) : 0;
  const bool windowed = window > 0 && types != "full";
  settings.push_back({"model.sliding_window", toml(windowed ? window : 0)});
  settings.push_back({"model.layer_types", windowed && types != "sliding" ? types : ""});
  read_rotary(c, c.size("max_position_embeddings", usual.context), settings);
  return settings;
}

ConfigSettings read_qwen2(const ConfigReader& c) {
  ConfigSettings settings = read_config(c, kUsual);
  if (c.size("head_dim", 1) != 1 && c.size("head_dim", 1) * c.size("num_attention_heads", kUsual.heads) !=
                                        c.size("hidden_size", kUsual.hidden))
    c.refuse("head_dim is not hidden_size / num_attention_heads, and a qwen2 has no other");
  return settings;
}

ConfigSettings read_qwen3(const ConfigReader& c) {
  UsualSizes usual = kUsual;
  usual.head_dim = 128;
  ConfigSettings settings = read_config(c, usual);
  settings.push_back({"model.attention_bias", toml(c.truth("attention_bias", false))});
  return settings;
}

void write_config(const recipe::Recipe::Model& m, ConfigWriter& c) {
  write_sizes(m, kUsual, c);
  c["max_position_embeddings"] = written_positions(m);
  c["use_sliding_window"] = m.sliding_window > 0;
  c["sliding_window"] = m.sliding_window > 0 ? nlohmann::json(m.sliding_window) : nlohmann::json();
  c["layer_types"] = written_layer_types(m);
  write_rotary(m, c);
}

void write_qwen3(const recipe::Recipe::Model& m, ConfigWriter& c) {
  write_config(m, c);
  c["head_dim"] = m.head_dim.value;
  c["attention_bias"] = m.attention_bias;
}

struct Size {
  int layers, hidden, heads, kv_heads, head_dim, ffn;
  bool tied;
  int vocab = 151936;
};

Preset preset(const char* name, const Size& size) {
  return {name,
          {{"model.layers", std::to_string(size.layers)},
           {"model.hidden", std::to_string(size.hidden)},
           {"model.heads", std::to_string(size.heads)},
           {"model.kv_heads", std::to_string(size.kv_heads)},
           {"model.head_dim", std::to_string(size.head_dim)},
           {"model.ffn", std::to_string(size.ffn)},
           {"model.vocab", std::to_string(size.vocab)},
           {"model.tied", size.tied ? "true" : "false"},
           {"model.context", "32768"},
           {"model.norm_epsilon", "1e-6"},
           {"model.rope_theta", "1000000.0"}}};
}

// Qwen 2.5
const Size k05b{
    .layers = 24, .hidden = 896, .heads = 14, .kv_heads = 2, .head_dim = 64, .ffn = 4864, .tied = true};
const Size k7b{.layers = 28,
               .hidden = 3584,
               .heads = 28,
               .kv_heads = 4,
               .head_dim = 128,
               .ffn = 18944,
               .tied = false,
               .vocab = 152064};
// Qwen 3
const Size k06b{
    .layers = 28, .hidden = 1024, .heads = 16, .kv_heads = 8, .head_dim = 128, .ffn = 3072, .tied = true};
const Size k8b{
    .layers = 36, .hidden = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .ffn = 12288, .tied = false};

FamilyDefaults defaults() {
  return {.ffn = gated_ffn,
          .activation = "silu",
          .keys = {{"model.norm_epsilon", "1e-6"}, {"model.rope_theta", "1000000.0"}}};
}

void check(const recipe::Recipe& recipe) { check_rotary(recipe.model); }

}  // namespace

Family qwen2_family() {
  return {.name = "qwen2",
          .describe = "Qwen 2 and 2.5: a Llama with biases on q, k and v",
          .reads = keys_of({attention_keys(), rotary_keys(), window_keys()}),
          .defaults = defaults(),
          .presets = {preset("0.5b", k05b), preset("7b", k7b)},
          .heads = Heads{.grouped = true},
          .check = check,
          .build = build_qwen2,
          .fp8_products = attention_products,
          .huggingface = llama_like("qwen2", "Qwen2ForCausalLM", read_qwen2, write_config)};
}

Family qwen3_family() {
  return {.name = "qwen3",
          .describe = "Qwen 3: a Llama with a norm of each head's q and k",
          .reads = keys_of({attention_keys(), rotary_keys(), window_keys(), {"model.attention_bias"}}),
          .defaults = defaults(),
          .presets = {preset("0.6b", k06b), preset("8b", k8b)},
          .heads = Heads{.grouped = true, .own_width = true, .any_number = true},
          .check = check,
          .build = build_qwen3,
          .fp8_products = attention_products,
          .huggingface = llama_like("qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen3)};
}

}  // namespace lockstep::model
