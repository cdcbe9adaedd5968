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

// What the sizes of products, or of their parts, are multiples of: 16 in fp8, else 1.
int64_t product_unit(const recipe::Recipe& recipe);

// Everything resolved. Parts of a matrix, and pieces of a sequence, have scales of their own: what the result
// depends on is the number of strands where the recipe fixes it, else that of ranks. ConfigError 185 where
// products cannot be cast at all; 186 for sizes, or parts of them, that fp8 cannot multiply.
void check_fp8(const recipe::Recipe& recipe, const Parts& parts);
void check_fp8_slice(const recipe::Recipe& recipe, const Parts& parts);  // 186, once batch.slices is settled

}  // namespace lockstep::model
