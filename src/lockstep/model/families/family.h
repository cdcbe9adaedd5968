// Families: how a recipe's [model] section becomes a Model. One file and one row a family.
#pragma once

#include <string>
#include <vector>

#include "lockstep/model/block.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::model {

struct Preset {
  std::string name;                                       // "124m"
  std::vector<std::pair<std::string, std::string>> keys;  // {"model.layers", "12"}: what it sets
};

struct Family {
  std::string name;
  std::string describe;  // one line for `explain model.family`
  std::vector<Preset> presets;
  // Everything resolved: no "auto" left in recipe.model.
  Model (*build)(const recipe::Recipe& recipe, DType compute, const Parts& parts);
};

const std::vector<Family>& families();
const Family& find_family(const std::string& name);  // ConfigError 120

// Sets the keys of model.preset that the user left alone. ConfigError 121 for one that the family has not.
void apply_preset(recipe::Resolved& resolved);
// Applies the preset, resolves every "auto" of [model] and checks that the
// sizes fit each other. `data_vocab` is what the dataset needs.
void resolve_model(recipe::Resolved& resolved, int64_t data_vocab);

// `parts`: what this rank works on; by default everything.
Model build_model(const recipe::Recipe& recipe, DType compute, const Parts& parts = {});

// The families' own files.
Family gpt2_family();
Family llama_family();
Family mlp_family();

}  // namespace lockstep::model
