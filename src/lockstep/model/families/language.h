// A model over tokens, around its layers: an embedding before them, a norm and the head behind. Families
// differ in their layers and in what their weights are called.
#pragma once

#include <functional>
#include <string>

#include "lockstep/model/block.h"
#include "lockstep/model/segments/norm_linear.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::model {

struct LanguageOptions {
  std::string tokens, positions;  // the embedding's tables; no name: positions are the layers' affair
  NormOptions norm;               // behind the last layer
  std::string head;               // where it is not tied to the tokens' table
  bool head_bias = false;
  double embedding_scale = 1;
  std::function<Block(int64_t)> layer;
};
Model build_language_model(const recipe::Recipe& recipe, DType compute, const Parts& parts,
                           const LanguageOptions& options);

}  // namespace lockstep::model
