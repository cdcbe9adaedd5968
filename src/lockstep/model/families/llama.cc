// Llama: rotary positions, RMSNorm, grouped key and value heads, a gated feed-forward part (SwiGLU), biases
// where asked.
#include <fmt/format.h>

#include <cmath>

#include "lockstep/model/families/family.h"
#include "lockstep/model/families/huggingface.h"
#include "lockstep/model/families/language.h"
#include "lockstep/model/segments/activation.h"
#include "lockstep/model/segments/fp8_recipe.h"
#include "lockstep/model/segments/norm_linear.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

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

RopeOptions rope(const Sizes& s) {
  return {.heads = s.m.heads,
          .kv_heads = s.m.kv_heads.value,
          .head_dim = s.head_dim,
          .positions = s.m.context.value,
          .theta = s.m.rope_theta,
          .scaling = s.m.rope_scaling,
          .type = s.m.rope_type,
          .low_freq = s.m.rope_low_freq,
          .high_freq = s.m.rope_high_freq,
          .original_context = s.m.rope_original_context,
          .attention = s.m.rope_attention,
          .short_factors = rope_factors(s.m.rope_short_factor),
          .long_factors = rope_factors(s.m.rope_long_factor)};
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
       .gives = "qkv",
       .norm = norm(s, name + "input_layernorm", i > 0),
       .map = {.in = hidden, .out = q + 2 * kv, .bias = s.m.attention_bias, .type = s.type, .fp8 = fp8},
       .weights = {{name + "self_attn.q_proj", q},
                   {name + "self_attn.k_proj", kv},
                   {name + "self_attn.v_proj", kv}},
       .rope = rope(s),
       .init_std = s.std,
       .parts = s.parts,
       .columns = {q, kv, kv}});
  segments.push_back(make_attention({s.type, s.m.heads, s.m.kv_heads.value, s.head_dim, rope(s), s.parts}));
  segments.push_back(make_projection(
      {.segment = "out",
       .takes = "context",
       .name = name + "self_attn.o_proj",
       .map = {.in = q, .out = hidden, .bias = s.m.attention_bias, .type = s.type, .fp8 = fp8},
       .dropout = {s.dropout, site},
       .init_std = residual_std,
       .parts = s.parts}));
  add_norm_linear(segments, {.segment = "up",
                             .gives = "act",
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
                       .takes = "act",
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
                              {.family = "llama",
                               .tokens = kLlamaTokens,
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

}  // namespace

Family llama_family() {
  return {"llama",
          "Llama: rotary positions, RMSNorm, grouped heads, SwiGLU",
          {preset("1b", 16, 2048, 32, 8192, true, 32), preset("3b", 28, 3072, 24, 8192, true, 32),
           preset("8b", 32, 4096, 32, 14336, false, 8)},
          build};
}

}  // namespace lockstep::model
