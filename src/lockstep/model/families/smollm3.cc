// SmolLM 3: a Llama whose every fourth layer knows no positions.
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/llama.h"
#include "lockstep/model/families/rotary.h"

namespace lockstep::model {

namespace {

using ModelKeys = recipe::Recipe::Model;

constexpr UsualSizes kUsual{.hidden = 2048,
                            .heads = 16,
                            .layers = 36,
                            .context = 32768,
                            .vocab = 128256,
                            .kv_heads = 4,
                            .tied = true};
constexpr double kTheta = 2e6;

bool has_positions(int64_t every, int64_t layer) { return every == 0 || (layer + 1) % every != 0; }

Model build(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  const ModelKeys& m = recipe.model;
  return build_llama_like(recipe, compute, parts, [&](int64_t i, DecoderLayer& layer) {
    layer.qkv_bias = layer.out_bias = m.attention_bias;
    layer.ffn_bias = m.mlp_bias;
    if (!has_positions(m.no_rope_every, i)) layer.rope.reset();
  });
}

// Which layers have positions, 1 or 0 each, as an interval.
int64_t read_interval(const ConfigReader& c, int64_t layers) {
  if (!c.has("no_rope_layers")) return c.size("no_rope_layer_interval", 4);
  const std::vector<int64_t> positions = c.counts("no_rope_layers");
  for (int64_t every = 0; every <= layers; ++every) {
    bool fits = static_cast<int64_t>(positions.size()) == layers;
    for (int64_t i = 0; fits && i < layers; ++i)
      fits = (positions[static_cast<size_t>(i)] != 0) == has_positions(every, i);
    if (fits) return every;
  }
  c.refuse("no_rope_layers is not each so-many-th layer of them all");
}

ConfigSettings read_config(const ConfigReader& c) {
  if (c.truth("use_sliding_window", false) && c.has("sliding_window")) c.refuse("use_sliding_window is true");
  ConfigSettings settings = read_sizes(c, kUsual);
  const int64_t layers = c.size("num_hidden_layers", kUsual.layers);
  settings.push_back({"model.no_rope_every", toml(read_interval(c, layers))});
  settings.push_back({"model.attention_bias", toml(c.truth("attention_bias", false))});
  settings.push_back({"model.mlp_bias", toml(c.truth("mlp_bias", false))});
  read_rotary(c, c.size("max_position_embeddings", kUsual.context), settings, {.theta = kTheta});
  return settings;
}

void write_config(const ModelKeys& m, ConfigWriter& c) {
  write_sizes(m, kUsual, c);
  c["pad_token_id"] = nullptr;  // transformers would take 128004, which small vocabularies do not have
  std::vector<int> positions;
  for (int64_t i = 0; i < m.layers; ++i) positions.push_back(has_positions(m.no_rope_every, i) ? 1 : 0);
  c["no_rope_layers"] = positions;
  c["no_rope_layer_interval"] = m.no_rope_every > 0 ? m.no_rope_every : m.layers + 1;
  c["max_position_embeddings"] = written_positions(m);
  c["attention_bias"] = m.attention_bias;
  c["mlp_bias"] = m.mlp_bias;
  c["use_sliding_window"] = false;
  write_rotary(m, c);
}

}  // namespace

Family smollm3_family() {
  return {.name = "smollm3",
          .describe = "SmolLM 3: a Llama whose every fourth layer knows no positions",
          .reads = keys_of({attention_keys(),
                            rotary_keys(),
                            {"model.no_rope_every", "model.attention_bias", "model.mlp_bias"}}),
          .defaults = {.ffn = gated_ffn,
                       .activation = "silu",
                       .keys = {{"model.norm_epsilon", "1e-6"},
                                {"model.no_rope_every", "4"},
                                {"model.rope_theta", "2000000.0"}}},
          .presets = {{"3b",
                       {{"model.layers", "36"},
                        {"model.hidden", "2048"},
                        {"model.heads", "16"},
                        {"model.kv_heads", "4"},
                        {"model.ffn", "11008"},
                        {"model.vocab", "128256"},
                        {"model.context", "65536"},
                        {"model.tied", "true"},
                        {"model.no_rope_every", "4"},
                        {"model.norm_epsilon", "1e-6"},
                        {"model.rope_theta", "5000000.0"}}}},
          .heads = Heads{.grouped = true},
          .check = [](const recipe::Recipe& recipe) { check_rotary(recipe.model); },
          .build = build,
          .fp8_products = attention_products,
          .huggingface = llama_like("smollm3", "SmolLM3ForCausalLM", read_config, write_config)};
}

}  // namespace lockstep::model
