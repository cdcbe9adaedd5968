// GPT-2: learned positions, LayerNorm, GELU, biases; weights as Hugging Face's Conv1D keeps them.
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
  int64_t hidden, heads, ffn, layers;
  float std, epsilon, dropout;
  kernels::ActivationKind curve;
  DType type;
  Parts parts;
};

NormOptions norm(const Sizes& s, std::string name, bool adds = true) {
  return {kernels::NormKind::layer, s.hidden, s.epsilon, std::move(name), adds};
}

Block layer(const Sizes& s, int64_t i, const std::optional<Fp8Products>& fp8) {
  const std::string name = fmt::format("transformer.h.{}.", i);
  const float residual_std = s.std / std::sqrt(2.0f * static_cast<float>(s.layers));
  const auto site = static_cast<uint32_t>(1 + 2 * i);
  std::vector<std::unique_ptr<Segment>> segments;
  add_norm_linear(segments, {.segment = "qkv",
                             .gives = "qkv",
                             .norm = norm(s, name + "ln_1", i > 0),
                             .map = {s.hidden, 3 * s.hidden, false, true, s.type, fp8},
                             .weights = {{name + "attn.c_attn", 3 * s.hidden, 3}},
                             .init_std = s.std,
                             .parts = s.parts,
                             .columns = {s.hidden, s.hidden, s.hidden}});
  segments.push_back(make_attention({s.type, s.heads, s.heads, s.hidden / s.heads, std::nullopt, s.parts}));
  segments.push_back(make_projection({.segment = "out",
                                      .takes = "context",
                                      .name = name + "attn.c_proj",
                                      .map = {s.hidden, s.hidden, false, true, s.type, fp8},
                                      .dropout = {s.dropout, site},
                                      .init_std = residual_std,
                                      .parts = s.parts}));
  add_norm_linear(segments, {.segment = "up",
                             .gives = "act",
                             .norm = norm(s, name + "ln_2"),
                             .map = {.in = s.hidden,
                                     .out = s.ffn,
                                     .out_major = false,
                                     .bias = true,
                                     .type = s.type,
                                     .fp8 = fp8,
                                     .curve = s.curve},
                             .weights = {{name + "mlp.c_fc", s.ffn}},
                             .activation = Activation::plain,
                             .init_std = s.std,
                             .parts = s.parts});
  segments.push_back(make_projection({.segment = "down",
                                      .takes = "act",
                                      .curve_of = "linear",
                                      .name = name + "mlp.c_proj",
                                      .map = {.in = s.ffn,
                                              .out = s.hidden,
                                              .out_major = false,
                                              .bias = true,
                                              .type = s.type,
                                              .fp8 = fp8,
                                              .curve = s.curve},
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
                parts};
  return build_language_model(recipe, compute, parts,
                              {.family = "gpt2",
                               .tokens = kGpt2Tokens,
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

}  // namespace

Family gpt2_family() {
  return {"gpt2",
          "GPT-2: learned positions, LayerNorm, GELU",
          {preset("124m", 12, 768, 12), preset("350m", 24, 1024, 16), preset("774m", 36, 1280, 20),
           preset("1.5b", 48, 1600, 25)},
          build};
}

}  // namespace lockstep::model
