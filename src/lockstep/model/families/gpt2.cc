// GPT-2: learned positions, LayerNorm, GELU, biases; weights as Hugging Face's Conv1D keeps them.
#include <fmt/format.h>

#include <cmath>

#include "lockstep/model/families/family.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/families/language.h"
#include "lockstep/model/segments/norm_linear.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

constexpr const char* kTokens = "transformer.wte";
constexpr const char* kHead = "lm_head";

struct Sizes {
  int64_t hidden, heads, ffn, layers;
  float std, epsilon, dropout;
  kernels::ActivationKind curve;
  DType type;
  Parts parts;
  bool documents;
};

NormOptions norm(const Sizes& s, std::string name, bool adds = true) {
  return {kernels::NormKind::layer, s.hidden, s.epsilon, std::move(name), adds};
}

// Conv1D: weights are [in, out], with biases.
LinearMap conv(const Sizes& s, int64_t in, int64_t out, const std::optional<Fp8Products>& fp8) {
  LinearMap map;
  map.in = in, map.out = out;
  map.out_major = false;
  map.bias = true;
  map.type = s.type;
  map.fp8 = fp8;
  map.curve = s.curve;
  return map;
}

Block layer(const Sizes& s, int64_t i, const std::optional<Fp8Products>& fp8) {
  const std::string name = fmt::format("transformer.h.{}.", i);
  const float residual_std = s.std / std::sqrt(2.0f * static_cast<float>(s.layers));
  const auto site = static_cast<uint32_t>(1 + 2 * i);
  std::vector<std::unique_ptr<Segment>> segments;
  add_norm_linear(segments, {.segment = "qkv",
                             .output = "qkv",
                             .norm = norm(s, name + "ln_1", i > 0),
                             .map = conv(s, s.hidden, 3 * s.hidden, fp8),
                             .weights = {{name + "attn.c_attn", 3 * s.hidden, 3}},
                             .init_std = s.std,
                             .parts = s.parts,
                             .columns = {s.hidden, s.hidden, s.hidden}});
  add_attention(segments, {.type = s.type,
                           .heads = s.heads,
                           .kv_heads = s.heads,
                           .head_dim = s.hidden / s.heads,
                           .rope = std::nullopt,
                           .parts = s.parts,
                           .documents = s.documents});
  segments.push_back(make_projection({.segment = "out",
                                      .input = "context",
                                      .name = name + "attn.c_proj",
                                      .map = conv(s, s.hidden, s.hidden, fp8),
                                      .dropout = {s.dropout, site},
                                      .init_std = residual_std,
                                      .parts = s.parts}));
  add_norm_linear(segments, {.segment = "up",
                             .output = "act",
                             .norm = norm(s, name + "ln_2"),
                             .map = conv(s, s.hidden, s.ffn, fp8),
                             .weights = {{name + "mlp.c_fc", s.ffn}},
                             .activation = Activation::plain,
                             .init_std = s.std,
                             .parts = s.parts});
  segments.push_back(make_projection({.segment = "down",
                                      .input = "act",
                                      .curve_of = "linear",
                                      .name = name + "mlp.c_proj",
                                      .map = conv(s, s.ffn, s.hidden, fp8),
                                      .dropout = {s.dropout, site + 1},
                                      .init_std = residual_std,
                                      .parts = s.parts}));
  return {fmt::format("layer {}", i), std::move(segments)};
}

Model build(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  const auto& m = recipe.model;
  const Sizes s{m.hidden,
                m.heads,
                m.ffn.value,
                m.layers,
                static_cast<float>(m.init_std),
                static_cast<float>(m.norm_epsilon),
                static_cast<float>(m.dropout),
                activation_of(m),
                compute,
                parts,
                recipe.data.pack};
  return build_language_model(recipe, compute, parts,
                              {.tokens = kTokens,
                               .positions = "transformer.wpe",
                               .norm = norm(s, "transformer.ln_f", m.layers > 0),
                               .head = kHead,
                               .layer = [&](int64_t i) { return layer(s, i, fp8_of_layer(recipe, i)); }});
}

Preset preset(const char* name, int layers, int hidden, int heads) {
  return {name,
          {{"model.layers", std::to_string(layers)},
           {"model.hidden", std::to_string(hidden)},
           {"model.heads", std::to_string(heads)},
           {"model.vocab", "50304"},
           {"model.context", "1024"}}};
}

ConfigSettings read_config(const ConfigReader& c) {
  if (!c.truth("scale_attn_weights", true)) c.refuse("scale_attn_weights is false");
  if (c.truth("scale_attn_by_inverse_layer_idx", false)) c.refuse("scale_attn_by_inverse_layer_idx is true");
  if (c.truth("add_cross_attention", false)) c.refuse("add_cross_attention is true");
  const int64_t hidden = c.size("n_embd", "hidden_size", 768);
  const int64_t heads = c.size("n_head", "num_attention_heads", 12);
  return {{"model.layers", toml(c.size("n_layer", "num_hidden_layers", 12))},
          {"model.hidden", toml(hidden)},
          {"model.heads", toml(heads)},
          {"model.kv_heads", toml(heads)},
          {"model.ffn", toml(c.size("n_inner", 4 * hidden))},
          {"model.context", toml(c.size("n_positions", "max_position_embeddings", 1024))},
          {"model.norm_epsilon", toml(c.number("layer_norm_epsilon", 1e-5))},
          {"model.tied", toml(c.truth("tie_word_embeddings", true))},
          {"model.activation", c.activation("activation_function", "gelu_new")},
          {"model.vocab", toml(c.size("vocab_size", 50257))}};
}

void write_config(const recipe::Recipe::Model& m, ConfigWriter& c) {
  c["activation_function"] = activation_name(m);
  c["n_embd"] = m.hidden;
  c["n_layer"] = m.layers;
  c["n_head"] = m.heads;
  c["n_inner"] = m.ffn.value;
  c["n_positions"] = m.context.value;
  c["n_ctx"] = m.context.value;
  c["layer_norm_epsilon"] = m.norm_epsilon;
  c["embd_pdrop"] = m.dropout;
  c["resid_pdrop"] = m.dropout;
  c["attn_pdrop"] = 0.0;
}

}  // namespace

Family gpt2_family() {
  return {.name = "gpt2",
          .describe = "GPT-2: learned positions, LayerNorm, GELU",
          .reads = attention_keys(),
          .defaults = {.ffn = [](const recipe::Recipe::Model& m) { return 4 * m.hidden; }},
          .presets = {preset("124m", 12, 768, 12), preset("350m", 24, 1024, 16), preset("774m", 36, 1280, 20),
                      preset("1.5b", 48, 1600, 25)},
          .heads = Heads{},
          .build = build,
          .fp8_products = attention_products,
          .huggingface = HuggingFace{.model_types = {"gpt2"},
                                     .architecture = "GPT2LMHeadModel",
                                     .tokens = kTokens,
                                     .head = kHead,
                                     .weights_by_input = true,
                                     .read = read_config,
                                     .write = write_config}};
}

}  // namespace lockstep::model
