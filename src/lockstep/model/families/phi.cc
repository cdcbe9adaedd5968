// Phi-1, 1.5 and 2: attention and feed-forward part side by side behind one LayerNorm, biases everywhere,
// rotary positions on a part of each head. Phi-3 and Phi-4-mini: a Llama whose maps are fused.
#include "lockstep/base/error.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/language.h"
#include "lockstep/model/families/llama.h"
#include "lockstep/model/families/rotary.h"

namespace lockstep::model {

namespace {

using ModelKeys = recipe::Recipe::Model;

// ---- Phi

constexpr UsualSizes kPhi{.hidden = 2048,
                          .layers = 24,
                          .ffn = 8192,
                          .context = 2048,
                          .vocab = 51200,
                          .epsilon = 1e-5,
                          .activation = "gelu_new",
                          .epsilon_key = "layer_norm_eps"};

Model build_phi(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  const ModelKeys& m = recipe.model;
  const auto layer = [&](int64_t i) {
    return decoder_layer({recipe, compute, parts, i},
                         {.prefix = "model.layers." + std::to_string(i) + ".",
                          .norm = kernels::NormKind::layer,
                          .attention_norm = "input_layernorm",
                          .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                          .qkv_bias = true,
                          .out = "self_attn.dense",
                          .out_bias = true,
                          .up = {"mlp.fc1"},
                          .gated = false,
                          .down = "mlp.fc2",
                          .ffn_bias = true,
                          .parallel = true,
                          .rope = rope_options(m)});
  };
  return build_language_model(recipe, compute, parts,
                              {.tokens = kLlamaTokens,
                               .norm = last_norm(m, kernels::NormKind::layer, "model.final_layernorm"),
                               .head = kLlamaHead,
                               .head_bias = true,
                               .layer = layer});
}

ConfigSettings read_phi(const ConfigReader& c) {
  c.require("qk_layernorm", false);
  ConfigSettings settings = read_sizes(c, kPhi);
  read_rotary(c, c.size("max_position_embeddings", kPhi.context), settings, {.partial = 0.5});
  return settings;
}

void write_phi(const ModelKeys& m, ConfigWriter& c) {
  write_sizes(m, kPhi, c);
  c["max_position_embeddings"] = written_positions(m);
  c["partial_rotary_factor"] = m.partial_rotary;
  c["resid_pdrop"] = m.dropout;
  c["embd_pdrop"] = m.dropout;
  write_rotary(m, c);
}

// ---- Phi-3

constexpr UsualSizes kPhi3{.hidden = 3072, .ffn = 8192, .context = 4096, .vocab = 32064, .epsilon = 1e-5};
constexpr int64_t kPhi3Original = 4096;

Model build_phi3(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  return build_llama_like(recipe, compute, parts, [](int64_t, DecoderLayer& layer) {
    layer.qkv = {"self_attn.qkv_proj"};
    layer.up = {"mlp.gate_up_proj"};
  });
}

// Its older names of LongRoPE are "su" and, wrongly, "yarn".
ConfigSettings read_phi3(const ConfigReader& c) {
  ConfigSettings settings = read_sizes(c, kPhi3);
  settings.push_back({"model.sliding_window", toml(c.size("sliding_window", 0))});
  const int64_t context = c.size("max_position_embeddings", kPhi3.context);
  read_rotary(
      c, context, settings,
      {.partial = 1, .renamed = {{"su", "longrope"}, {"yarn", "longrope"}}, .original = kPhi3Original});
  for (const ConfigSetting& setting : settings) {
    if (setting.key == "model.rope_type" && setting.value != "longrope")
      c.refuse("RoPE scaling of type " + setting.value + ": a phi3 takes longrope");
  }
  return settings;
}

void write_phi3(const ModelKeys& m, ConfigWriter& c) {
  write_sizes(m, kPhi3, c);
  c["pad_token_id"] = nullptr;  // transformers would take 32000, which small vocabularies do not have
  c["max_position_embeddings"] = m.context.value;
  if (m.rope_scaling > 0) c["original_max_position_embeddings"] = m.rope_original_context;
  c["partial_rotary_factor"] = m.partial_rotary;
  c["sliding_window"] = m.sliding_window > 0 ? nlohmann::json(m.sliding_window) : nlohmann::json();
  c["resid_pdrop"] = m.dropout;
  c["embd_pdrop"] = m.dropout;
  write_rotary(m, c);
}

void check_phi3(const recipe::Recipe& recipe) {
  check_rotary(recipe.model);
  if (recipe.model.rope_scaling > 0 && recipe.model.rope_type != "longrope") {
    throw base::ConfigError(128,
                            "model.rope_type = \"" + recipe.model.rope_type +
                                "\": a phi3 is stretched by longrope alone; set it, or model.rope_scaling=0");
  }
}

}  // namespace

Family phi_family() {
  return {
      .name = "phi",
      .describe = "Phi-1, 1.5 and 2: attention and feed-forward part side by side, partial rotary positions",
      .reads = keys_of({attention_keys(), rotary_keys(), {"model.partial_rotary"}}),
      .defaults = {.ffn = [](const ModelKeys& m) { return 4 * m.hidden; },
                   .activation = "gelu_new",
                   .keys = {{"model.tied", "false"}, {"model.partial_rotary", "0.5"}}},
      .presets = {{"2",
                   {{"model.layers", "32"},
                    {"model.hidden", "2560"},
                    {"model.heads", "32"},
                    {"model.ffn", "10240"},
                    {"model.vocab", "51200"},
                    {"model.context", "2048"},
                    {"model.tied", "false"},
                    {"model.partial_rotary", "0.4"}}}},
      .heads = Heads{.grouped = true},
      .check = [](const recipe::Recipe& recipe) { check_rotary(recipe.model); },
      .build = build_phi,
      .fp8_products = attention_products,
      .huggingface = llama_like("phi", "PhiForCausalLM", read_phi, write_phi)};
}

Family phi3_family() {
  return {
      .name = "phi3",
      .describe = "Phi-3 and Phi-4-mini: a Llama with fused maps, a sliding window, LongRoPE",
      .reads = keys_of({attention_keys(), rotary_keys(), {"model.sliding_window", "model.partial_rotary"}}),
      .defaults = {.ffn = gated_ffn, .activation = "silu", .keys = {{"model.tied", "false"}}},
      .presets = {{"mini",
                   {{"model.layers", "32"},
                    {"model.hidden", "3072"},
                    {"model.heads", "32"},
                    {"model.ffn", "8192"},
                    {"model.vocab", "32064"},
                    {"model.context", "4096"},
                    {"model.tied", "false"},
                    {"model.sliding_window", "2047"}}}},
      .heads = Heads{.grouped = true, .reads_grown_text_again = true},
      .check = check_phi3,
      .build = build_phi3,
      .fp8_products = attention_products,
      .huggingface = llama_like("phi3", "Phi3ForCausalLM", read_phi3, write_phi3)};
}

}  // namespace lockstep::model
