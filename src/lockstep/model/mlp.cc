// MLP: an embedding and residual feed-forward layers, each token on its own. The smallest thing that trains:
// it learns which token follows which, and shows what attention adds.
#include <fmt/format.h>

#include "lockstep/model/family.h"
#include "lockstep/model/fp8_recipe.h"
#include "lockstep/model/norm_linear.h"
#include "lockstep/model/parts.h"

namespace lockstep::model {

namespace {

Block layer(const base::Recipe& recipe, DType type, int64_t i, const Parts& parts) {
  const base::Recipe::Model& m = recipe.model;
  const std::optional<Fp8Products> fp8 = fp8_of_layer(recipe, i);
  const std::string name = fmt::format("layers.{}.", i);
  const auto std = static_cast<float>(m.init_std);
  std::vector<std::unique_ptr<Segment>> segments;
  add_norm_linear(segments, {.segment = "up",
                             .gives = "act",
                             .norm = NormOptions{kernels::NormKind::layer, m.hidden,
                                                 static_cast<float>(m.norm_epsilon), name + "norm", i > 0},
                             .map = {m.hidden, m.ffn.value, true, true, type, fp8},
                             .weights = {{name + "up", m.ffn.value}},
                             .activation = Activation::gelu,
                             .init_std = std,
                             .parts = parts});
  segments.push_back(
      make_projection({.segment = "down",
                       .takes = "act",
                       .gelu_of = "linear",
                       .name = name + "down",
                       .map = {m.ffn.value, m.hidden, true, true, type, fp8},
                       .dropout = {static_cast<float>(m.dropout), static_cast<uint32_t>(1 + i)},
                       .init_std = std,
                       .parts = parts}));
  return {fmt::format("layer {}", i), std::move(segments)};
}

Model build(const base::Recipe& recipe, DType compute, const Parts& parts) {
  const auto& m = recipe.model;
  Model model{.family = "mlp",
              .compute = compute,
              .parts = parts,
              .blocks = {},
              .vocab = m.vocab.value,
              .context = m.context.value,
              .hidden = m.hidden,
              .layers = m.layers};
  const auto std = static_cast<float>(m.init_std);
  std::vector<std::unique_ptr<Segment>> first, last;
  first.push_back(make_embedding({compute,
                                  m.vocab.value,
                                  m.hidden,
                                  0,
                                  "embedding",
                                  "",
                                  {static_cast<float>(m.dropout), 0},
                                  std,
                                  parts}));
  model.blocks.emplace_back("embedding", std::move(first));
  for (int64_t i = 0; i < m.layers; ++i) model.blocks.push_back(layer(recipe, compute, i, parts));
  last.push_back(make_final_norm(
      {kernels::NormKind::layer, m.hidden, static_cast<float>(m.norm_epsilon), "norm", m.layers > 0}, compute,
      parts));
  add_head(last,
           {.type = compute,
            .vocab = m.vocab.value,
            .width = m.hidden,
            .chunk = recipe.memory.logits_chunk.value,
            .name = "head",
            .tied_to = m.tied ? "embedding.weight" : "",
            .init_std = std,
            .fp8 = fp8_of_head(recipe)},
           parts);
  model.blocks.emplace_back("head", std::move(last));
  return model;
}

}  // namespace

Family mlp_family() { return {"mlp", "residual feed-forward layers, each token on its own", {}, build}; }

}  // namespace lockstep::model
