#include "lockstep/see/recipe_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::see {

namespace {

struct AsText {
  std::string operator()(const recipe::TomlTable&) const { return ""; }
  std::string operator()(const recipe::TomlList& list) const { return base::join(list.items, ", "); }
  std::string operator()(const recipe::TomlOther& other) const { return other.what; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return recipe::toml_number(value); }
  std::string operator()(const std::string& value) const { return value; }
};

}  // namespace

RecipeKeys recipe_keys_of(const std::string& toml) {
  RecipeKeys keys;
  try {
    for (const recipe::TomlNode& node : recipe::parse_toml(toml)) {
      if (!std::holds_alternative<recipe::TomlTable>(node.value))
        keys.emplace_back(node.name, std::visit(AsText{}, node.value));
    }
  } catch (const recipe::TomlSyntaxError&) {
    return {};
  }
  return keys;
}

std::string value_of(const RecipeKeys& keys, const std::string& key) {
  for (const auto& [name, value] : keys) {
    if (name == key) return value;
  }
  return "";
}

std::vector<KeyDifference> differences(const std::vector<RecipeKeys>& recipes) {
  std::vector<KeyDifference> all;
  std::vector<std::string> seen;
  for (const RecipeKeys& recipe : recipes) {
    for (const auto& [key, value] : recipe) {
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
      seen.push_back(key);
      KeyDifference one{.key = key, .values = {}};
      for (const RecipeKeys& other : recipes) one.values.push_back(value_of(other, key));
      const bool differs = std::any_of(one.values.begin(), one.values.end(),
                                       [&](const std::string& v) { return v != one.values.front(); });
      if (differs) all.push_back(std::move(one));
    }
  }
  return all;
}

}  // namespace lockstep::see
