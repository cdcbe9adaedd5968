#include "lockstep/model/families/language.h"

#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

std::optional<PairOptions> pairs_of(const recipe::Recipe& recipe) {
  if (recipe.tune.loss != "dpo") return std::nullopt;
  return PairOptions{.beta = static_cast<float>(recipe.tune.beta),
                     .smoothing = static_cast<float>(recipe.tune.label_smoothing)};
}

}  // namespace

Model build_language_model(const recipe::Recipe& recipe, DType compute, const Parts& parts,
                           const LanguageOptions& options) {
  const recipe::Recipe::Model& m = recipe.model;
  const auto init_std = static_cast<float>(m.init_std);
  Model model{.compute = compute,
              .parts = parts,
              .blocks = {},
              .vocab = m.vocab.value,
              .context = m.context.value,
              .hidden = m.hidden,
              .layers = m.layers,
              .seq_len = recipe.data.seq_len,
              .documents = recipe.data.pack,
              .pairs = recipe.tune.loss == "dpo"};
  std::vector<std::unique_ptr<Segment>> first, last;
  first.push_back(make_embedding({.type = compute,
                                  .vocab = m.vocab.value,
                                  .width = m.hidden,
                                  .positions = options.positions.empty() ? 0 : m.context.value,
                                  .token_name = options.tokens,
                                  .position_name = options.positions,
                                  .dropout = {static_cast<float>(m.dropout), 0},
                                  .init_std = init_std,
                                  .parts = parts,
                                  .scale = options.embedding_scale,
                                  .documents = recipe.data.pack}));
  model.blocks.emplace_back("embedding", std::move(first));
  for (int64_t i = 0; i < m.layers; ++i) model.blocks.push_back(options.layer(i));
  last.push_back(make_final_norm(options.norm, compute, parts));
  add_head(last,
           {.type = compute,
            .vocab = m.vocab.value,
            .width = m.hidden,
            .chunk = recipe.memory.logits_chunk.value,
            .name = options.head,
            .tied_to = m.tied ? options.tokens + ".weight" : "",
            .init_std = init_std,
            .fp8 = fp8_of_head(recipe),
            .bias = options.head_bias,
            .softcap = static_cast<float>(m.final_softcap),
            .pairs = pairs_of(recipe)},
           parts);
  model.blocks.emplace_back("head", std::move(last));
  return model;
}

}  // namespace lockstep::model
