// The keys of a run's config.toml as plain text, also of a run of another version: what is compared, and what
// other programs are told as hyperparameters.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::see {

using RecipeKeys = std::vector<std::pair<std::string, std::string>>;  // "optim.lr" to "0.001", file's order

// Empty where it is no TOML.
RecipeKeys recipe_keys_of(const std::string& toml);
std::string value_of(const RecipeKeys& keys, const std::string& key);  // empty: it has none

// Keys whose values differ between these recipes, each with one value per recipe; empty where it has none.
struct KeyDifference {
  std::string key;
  std::vector<std::string> values;
};
std::vector<KeyDifference> differences(const std::vector<RecipeKeys>& recipes);

}  // namespace lockstep::see
