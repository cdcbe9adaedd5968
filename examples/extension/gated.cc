// A family: residual layers of RMSNorm and a gated feed-forward part, each token on its own.
#include <cmath>

#include "extension.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/families/language.h"
#include "lockstep/model/segments/norm_linear.h"
#include "lockstep/model/segments/parts.h"

namespace {

using namespace lockstep;

model::NormOptions norm(const recipe::Recipe::Model& m, std::string name, bool adds) {
  return {.kind = kernels::NormKind::rms,
          .width = m.hidden,
          .epsilon = static_cast<float>(m.norm_epsilon),
          .name = std::move(name),
          .adds = adds};
}

model::Block layer(const recipe::Recipe::Model& m, device::DType type, int64_t i, const model::Parts& parts) {
  const std::string name = "layers." + std::to_string(i) + ".";
  const auto deviation = static_cast<float>(m.init_std);
  const int64_t ffn = m.ffn.value;
  const model::LinearMap gate_and_up{
      .in = m.hidden, .out = 2 * ffn, .type = type, .curve = model::activation_of(m)};
  std::vector<std::unique_ptr<model::Segment>> segments;
  model::add_norm_linear(
      segments, {.segment = "up",
                 .output = "act",
                 .norm = norm(m, name + "norm", i > 0),
                 .map = gate_and_up,
                 .weights = {{name + "gate", ffn}, {name + "up", ffn}},
                 .activation = model::Activation::gated,
                 .init_std = deviation,
                 .parts = parts});
  segments.push_back(
      model::make_projection({.segment = "down",
                              .input = "act",
                              .name = name + "down",
                              .map = {.in = ffn, .out = m.hidden, .type = type},
                              .dropout = {static_cast<float>(m.dropout), static_cast<uint32_t>(1 + i)},
                              .init_std = deviation / std::sqrt(2.0f * static_cast<float>(m.layers)),
                              .parts = parts}));
  return {"layer " + std::to_string(i), std::move(segments)};
}

model::Model build(const recipe::Recipe& recipe, device::DType compute, const model::Parts& parts) {
  const auto& m = recipe.model;
  return model::build_language_model(recipe, compute, parts,
                                     {.tokens = "embedding",
                                      .positions = "",
                                      .norm = norm(m, "norm", m.layers > 0),
                                      .head = "head",
                                      .layer = [&](int64_t i) { return layer(m, compute, i, parts); }});
}

}  // namespace

lockstep::model::Family gated_family() {
  return {.name = "gated",
          .describe = "RMSNorm and gated feed-forward layers, each token on its own",
          .defaults = {.ffn = [](const recipe::Recipe::Model& m) { return 2 * m.hidden; },
                       .activation = "silu",
                       .keys = {{"model.tied", "false"}}},
          .presets = {{.name = "tiny", .keys = {{"model.layers", "2"}, {"model.hidden", "32"}}}},
          .build = build};
}
