// What a recipe's [precision] says of fp8: which layers, how they are cast, and what does not go together.
#pragma once

#include <optional>
#include <string>

#include "lockstep/model/families/family.h"
#include "lockstep/model/segments/linear.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::model {

// How the products of this layer are cast; nothing where they stay as precision.compute else has them.
std::optional<Fp8Products> fp8_of_layer(const recipe::Recipe& recipe, int64_t layer);
std::optional<Fp8Products> fp8_of_head(const recipe::Recipe& recipe);

// "fp8 scaled by tensor, gradients e5m2, ...": all that the bits rest on, for the numerics record.
std::string fp8_words(const recipe::Recipe& recipe);

// For Family::fp8_products: the products of feed-forward layers, and those of attention as well.
std::vector<ProductSize> layer_products(const recipe::Recipe::Model& model);
std::vector<ProductSize> attention_products(const recipe::Recipe::Model& model);

// Everything resolved. ConfigError 185 for layouts that cut a matrix among ranks, since then each would scale
// its part by itself and the result would depend on how many there are; 186 for sizes that fp8 cannot
// multiply.
void check_fp8(const recipe::Recipe& recipe, const Parts& parts);
void check_fp8_slice(const recipe::Recipe& recipe);  // 186, once batch.slices is settled

}  // namespace lockstep::model
