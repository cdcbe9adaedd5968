// Mistral: a Llama whose queries look back over a sliding window.
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/llama.h"
#include "lockstep/model/families/rotary.h"

namespace lockstep::model {

namespace {

constexpr UsualSizes kUsual{.ffn = 14336, .context = 131072, .kv_heads = 8};

Model build(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  return build_llama_like(recipe, compute, parts, [](int64_t, DecoderLayer&) {});
}

ConfigSettings read_config(const ConfigReader& c) {
  ConfigSettings settings = read_sizes(c, kUsual);
  const bool said = c.names("sliding_window");
  settings.push_back({"model.sliding_window", toml(c.size("sliding_window", said ? 0 : 4096))});
  read_rotary(c, c.size("max_position_embeddings", kUsual.context), settings);
  return settings;
}

void write_config(const recipe::Recipe::Model& m, ConfigWriter& c) {
  write_sizes(m, kUsual, c);
  c["head_dim"] = m.head_dim.value;
  c["max_position_embeddings"] = written_positions(m);
  c["sliding_window"] = m.sliding_window > 0 ? nlohmann::json(m.sliding_window) : nlohmann::json();
  write_rotary(m, c);
}

}  // namespace

Family mistral_family() {
  return {.name = "mistral",
          .describe = "Mistral: a Llama with a sliding window",
          .reads = keys_of({attention_keys(), rotary_keys(), {"model.sliding_window"}}),
          .defaults = {.ffn = gated_ffn,
                       .activation = "silu",
                       .keys = {{"model.tied", "false"}, {"model.sliding_window", "4096"}}},
          .presets = {{"7b",
                       {{"model.layers", "32"},
                        {"model.hidden", "4096"},
                        {"model.heads", "32"},
                        {"model.kv_heads", "8"},
                        {"model.ffn", "14336"},
                        {"model.vocab", "32000"},
                        {"model.context", "32768"},
                        {"model.tied", "false"},
                        {"model.sliding_window", "4096"}}}},
          .heads = Heads{.grouped = true, .own_width = true, .any_number = true},
          .check = [](const recipe::Recipe& recipe) { check_rotary(recipe.model); },
          .build = build,
          .fp8_products = attention_products,
          .huggingface = llama_like("mistral", "MistralForCausalLM", read_config, write_config)};
}

}  // namespace lockstep::model
