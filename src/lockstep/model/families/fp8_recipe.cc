#include "lockstep/model/families/fp8_recipe.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::model {

namespace {

using base::ConfigError;

Fp8Products products_of(const recipe::Recipe::Precision& p) {
  return {.scaling = p.fp8_scaling == "row"     ? kernels::Fp8Scaling::row
                     : p.fp8_scaling == "block" ? kernels::Fp8Scaling::block
                                                : kernels::Fp8Scaling::tensor,
          .gradients = p.fp8_gradients == "e4m3" ? kernels::Fp8::e4m3 : kernels::Fp8::e5m2,
          .fast_forward = p.fp8_fast_sums != "none",
          .fast_backward = p.fp8_fast_sums == "all"};
}

// Of one of `parts` parts, where the size is cut at all.
void check_multiple(const ProductSize& one, const Parts& parts = {}) {
  const int64_t ways = one.cut ? parts.product_parts() : 1;
  if (one.size % (ways * kernels::kFp8Multiple) == 0) return;
  const std::string each =
      ways == 1 ? ""
                : fmt::format(" for each of {} {}", ways,
                              parts.fixes_products() ? "product strands (batch.product_strands)"
                                                     : "tensor ranks (parallel.tensor)");
  int64_t fewer = ways / 2;
  while (fewer > 0 && one.size % (fewer * kernels::kFp8Multiple) != 0) fewer /= 2;
  throw ConfigError(
      186, fmt::format("precision.compute = \"fp8\" needs sizes that are multiples of {}{}, but {} is {}: {}",
                       kernels::kFp8Multiple, each, one.what, one.size,
                       fewer > 0 ? fmt::format("use {} of them, or {}", fewer, one.remedy) : one.remedy));
}

}  // namespace

std::optional<Fp8Products> fp8_of_layer(const recipe::Recipe& recipe, int64_t layer) {
  const auto& p = recipe.precision;
  if (p.compute != "fp8" || layer < p.fp8_skip_first || layer >= recipe.model.layers - p.fp8_skip_last)
    return std::nullopt;
  return products_of(p);
}

std::optional<Fp8Products> fp8_of_head(const recipe::Recipe& recipe) {
  if (recipe.precision.compute != "fp8" || !recipe.precision.fp8_head) return std::nullopt;
  return products_of(recipe.precision);
}

std::string fp8_words(const recipe::Recipe& recipe) {
  const auto& p = recipe.precision;
  return fmt::format(
      "fp8 scaled by {}, gradients {}, fast sums {}, without {} first and {} last layers, head {}",
      p.fp8_scaling, p.fp8_gradients, p.fp8_fast_sums, p.fp8_skip_first, p.fp8_skip_last,
      p.fp8_head ? "fp8" : "bf16");
}

std::vector<ProductSize> layer_products(const recipe::Recipe::Model& m) {
  return {{"model.hidden", m.hidden, "choose another width"},
          {"model.ffn", m.ffn.value, "set it to a multiple", true}};
}

std::vector<ProductSize> attention_products(const recipe::Recipe::Model& m) {
  std::vector<ProductSize> all = layer_products(m);
  all.push_back({"the width of q, k and v", (m.heads + 2 * m.kv_heads.value) * m.head_dim.value,
                 "choose other model.heads or model.kv_heads", true});
  all.push_back({"the width of the attention output", m.heads * m.head_dim.value,
                 "choose other model.heads or model.head_dim", true});
  return all;
}

int64_t product_unit(const recipe::Recipe& recipe) {
  return recipe.precision.compute == "fp8" ? kernels::kFp8Multiple : 1;
}

void check_fp8(const recipe::Recipe& recipe, const Parts& parts) {
  if (recipe.precision.compute != "fp8") return;
  if (recipe.tune.method == "lora") {
    throw ConfigError(185,
                      "precision.compute = \"fp8\" does not work with tune.method = \"lora\" yet; use "
                      "precision.compute=bf16");
  }
  const auto& m = recipe.model;
  const Family& family = find_family(m.family);
  if (!family.fp8_products) {
    throw ConfigError(
        185,
        fmt::format("precision.compute = \"fp8\": family {} does not support fp8; use bf16", family.name));
  }
  for (const ProductSize& one : family.fp8_products(m)) check_multiple(one, parts);
  if (!recipe.precision.fp8_head) return;
  check_multiple({"model.vocab", m.vocab.value, "set it to a multiple, or precision.fp8_head=false", true},
                 parts);
  check_multiple({"memory.logits_chunk", recipe.memory.logits_chunk.value,
                  "set it to a multiple, or precision.fp8_head=false"});
}

void check_fp8_slice(const recipe::Recipe& recipe, const Parts& parts) {
  if (recipe.precision.compute != "fp8") return;
  const int64_t tokens = recipe.batch.global / recipe.batch.slices.value * recipe.data.seq_len;
  const int pieces = std::max(parts.context, parts.sequence_strands);
  check_multiple({pieces == 1 ? "the number of tokens in a slice"
                              : fmt::format("the number of tokens in a slice on one of {} {}", pieces,
                                            parts.fixes_sequences() ? "sequence strands" : "context ranks"),
                  tokens / pieces, "choose another data.seq_len or batch.slices"});
}

}  // namespace lockstep::model
