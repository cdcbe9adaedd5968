// Llama: rotary positions, RMSNorm, grouped key and value heads, a gated feed-forward part (SwiGLU), biases
// where asked. SmolLM and many others are Llamas by name.
#include "lockstep/model/families/llama.h"
#include "lockstep/base/round.h"
#include "lockstep/model/families/decoder.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/language.h"
#include "lockstep/model/families/rotary.h"

namespace lockstep::model {

namespace {

constexpr UsualSizes kUsual{};

Model build(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  return build_llama_like(recipe, compute, parts, [&](int64_t, DecoderLayer& layer) {
    layer.qkv_bias = layer.out_bias = recipe.model.attention_bias;
    layer.ffn_bias = recipe.model.mlp_bias;
  });
}

struct Size {
  int layers, hidden, heads, ffn;
  bool tied;
  int scaling;  // of the rotary positions
};

Preset preset(const char* name, const Size& size) {
  return {name,
          {{"model.layers", std::to_string(size.layers)},
           {"model.hidden", std::to_string(size.hidden)},
           {"model.heads", std::to_string(size.heads)},
           {"model.kv_heads", "8"},
           {"model.ffn", std::to_string(size.ffn)},
           {"model.vocab", "128256"},
           {"model.tied", size.tied ? "true" : "false"},
           {"model.context", "8192"},
           {"model.rope_theta", "500000.0"},
           {"model.rope_scaling", std::to_string(size.scaling) + ".0"}}};
}

const Size k1b{.layers = 16, .hidden = 2048, .heads = 32, .ffn = 8192, .tied = true, .scaling = 32};
const Size k3b{.layers = 28, .hidden = 3072, .heads = 24, .ffn = 8192, .tied = true, .scaling = 32};
const Size k8b{.layers = 32, .hidden = 4096, .heads = 32, .ffn = 14336, .tied = false, .scaling = 8};

ConfigSettings read_config(const ConfigReader& c) {
  ConfigSettings settings = read_sizes(c, kUsual);
  settings.push_back({"model.attention_bias", toml(c.truth("attention_bias", false))});
  settings.push_back({"model.mlp_bias", toml(c.truth("mlp_bias", false))});
  read_rotary(c, c.size("max_position_embeddings", kUsual.context), settings);
  return settings;
}

void write_config(const recipe::Recipe::Model& m, ConfigWriter& c) {
  write_sizes(m, kUsual, c);
  c["head_dim"] = m.head_dim.value;
  c["max_position_embeddings"] = written_positions(m);
  c["attention_bias"] = m.attention_bias;
  c["mlp_bias"] = m.mlp_bias;
  write_rotary(m, c);
}

}  // namespace

int64_t gated_ffn(const recipe::Recipe::Model& m) { return base::round_up(m.hidden * 8 / 3, 64); }

Model build_llama_like(const recipe::Recipe& recipe, DType compute, const Parts& parts,
                       const std::function<void(int64_t, DecoderLayer&)>& change,
                       const LlamaLikeOptions& options) {
  const recipe::Recipe::Model& m = recipe.model;
  const auto layer = [&](int64_t i) {
    DecoderLayer made{.prefix = "model.layers." + std::to_string(i) + ".",
                      .norm_offset = options.norm_offset,
                      .attention_norm = "input_layernorm",
                      .ffn_norm = "post_attention_layernorm",
                      .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                      .out = "self_attn.o_proj",
                      .up = {"mlp.gate_proj", "mlp.up_proj"},
                      .down = "mlp.down_proj",
                      .scores = score_options(m, i),
                      .rope = rope_options(m)};
    change(i, made);
    return decoder_layer({recipe, compute, parts, i}, made);
  };
  return build_language_model(
      recipe, compute, parts,
      {.tokens = kLlamaTokens,
       .norm = last_norm(m, kernels::NormKind::rms, "model.norm", options.norm_offset),
       .head = kLlamaHead,
       .embedding_scale = options.embedding_scale,
       .layer = layer});
}

HuggingFace llama_like(const char* model_type, const char* architecture,
                       std::function<ConfigSettings(const ConfigReader&)> read,
                       std::function<void(const recipe::Recipe::Model&, ConfigWriter&)> write) {
  return {.model_types = {model_type},
          .architecture = architecture,
          .tokens = kLlamaTokens,
          .head = kLlamaHead,
          .read = std::move(read),
          .write = std::move(write)};
}

Family llama_family() {
  return {.name = "llama",
          .describe = "Llama: rotary positions, RMSNorm, grouped heads, SwiGLU",
          .reads = keys_of({attention_keys(), rotary_keys(), {"model.attention_bias", "model.mlp_bias"}}),
          .defaults = {.ffn = gated_ffn, .activation = "silu"},
          .presets = {preset("1b", k1b), preset("3b", k3b), preset("8b", k8b)},
          .heads = Heads{.grouped = true, .own_width = true},
          .check = [](const recipe::Recipe& recipe) { check_rotary(recipe.model); },
          .build = build,
          .fp8_products = attention_products,
          .huggingface = llama_like("llama", "LlamaForCausalLM", read_config, write_config)};
}

}  // namespace lockstep::model
