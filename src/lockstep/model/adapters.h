// LoRA: which maps of a model get an adapter, from what a recipe says.
//
// An adapter is a product of two thin matrices that is added to a linear map whose own weight stays as it is:
// y = x W + scale * drop(x) A B. The parameters are called as PEFT calls them: MAP.lora_A.weight, [rank, in],
// and MAP.lora_B.weight, [out, rank]. Families know nothing of it: their segments say which maps they have.
#pragma once

#include "lockstep/base/error.h"
#include "lockstep/model/block.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::model {

constexpr const char* kAdapterA = ".lora_A.weight";
constexpr const char* kAdapterB = ".lora_B.weight";

AdapterOptions adapter_options(const recipe::Recipe::Tune& tune);
double adapter_scale(const recipe::Recipe::Tune& tune);  // alpha / rank, or / sqrt(rank)

// A target that names no map.
class TargetError : public base::ConfigError {
 public:
  TargetError(const std::string& target, const std::string& sentence)
      : base::ConfigError(195, sentence), target_(target) {}
  const std::string& target() const { return target_; }

 private:
  std::string target_;
};

// To every map that is wanted. TargetError (195) where a target names no map of the model, 196 where the
// model has none.
void add_adapters(Model& model, const AdapterOptions& options);

// Names of the weights of all maps that could have one: those that tune.base is about.
std::vector<std::string> map_weights(const Model& model);

// Names of the maps that have adapters, in the model's order.
std::vector<std::string> adapted_maps(const Model& model);
// The shortest list of names that means these maps in PEFT's target_modules: the last parts of their names,
// if every map that ends so has an adapter, else whole names.
std::vector<std::string> target_names(const Model& model);

}  // namespace lockstep::model
