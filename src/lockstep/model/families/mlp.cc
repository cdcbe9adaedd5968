// MLP: an embedding and residual feed-forward layers, each token on its own. The smallest thing that trains:
// it learns which token follows which, and shows what attention adds.
#include <fmt/format.h>

#include "lockstep/model/families/family.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/language.h"
#include "lockstep/model/segments/norm_linear.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

NormOptions norm(const recipe::Recipe::Model& m, std::string name, bool adds) {
  return {kernels::NormKind::layer, m.hidden, static_cast<float>(m.norm_epsilon), std::move(name), adds};
}

Block layer(const recipe::Recipe& recipe, DType type, int64_t i, const Parts& parts) {
  const recipe::Recipe::Model& m = recipe.model;
  const std::optional<Fp8Products> fp8 = fp8_of_layer(recipe, i);
  const std::string name = fmt::format("layers.{}.", i);
  const auto std = static_cast<float>(m.init_std);
  const kernels::ActivationKind curve = activation_of(m);
  const LinearMap up{
      .in = m.hidden, .out = m.ffn.value, .bias = true, .type = type, .fp8 = fp8, .curve = curve};
  std::vector<std::unique_ptr<Segment>> segments;
  add_norm_linear(segments, {.segment = "up",
                             .output = "act",
                             .norm = norm(m, name + "norm", i > 0),
                             .map = up,
                             .weights = {{name + "up", m.ffn.value}},
                             .activation = Activation::plain,
                             .init_std = std,
                             .parts = parts});
  segments.push_back(make_projection(
      {.segment = "down",
       .input = "act",
       .curve_of = "linear",
       .name = name + "down",
       .map = {.in = m.ffn.value, .out = m.hidden, .bias = true, .type = type, .fp8 = fp8, .curve = curve},
       .dropout = {static_cast<float>(m.dropout), static_cast<uint32_t>(1 + i)},
       .init_std = std,
       .parts = parts}));
  return {fmt::format("layer {}", i), std::move(segments)};
}

Model build(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  return build_language_model(recipe, compute, parts,
                              {.tokens = "embedding",
                               .positions = "",
                               .norm = norm(recipe.model, "norm", recipe.model.layers > 0),
                               .head = "head",
                               .layer = [&](int64_t i) { return layer(recipe, compute, i, parts); }});
}

}  // namespace

Family mlp_family() {
  return {.name = "mlp",
          .describe = "residual feed-forward layers, applied to each token independently",
          .defaults = {.ffn = [](const recipe::Recipe::Model& m) { return 4 * m.hidden; }},
          .build = build,
          .fp8_products = layer_products};
}

}  // namespace lockstep::model
