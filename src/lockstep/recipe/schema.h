// The recipe's schema: one row a key, and everything that is made from the rows.
//
//     Resolved r = read_recipe({.file = "first.toml", .overrides = {"optim.lr=1e-3"}});
//     r.recipe.optim.lr            // 0.001
//     r.origin.at("optim.lr")      // "command line"
//
// An unknown key, a wrong type or a value out of range is a ConfigError that names the key, what was
// expected and, for unknown keys, the nearest real one.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/recipe/key_condition.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::recipe {

struct Key {
  enum class Type { boolean, integer, number, text, auto_integer };
  std::string name;  // "optim.lr"
  Type type;
  std::string meaning;                             // one or two sentences
  std::string example;                             // "optim.lr = 3e-4"
  std::vector<std::string> choices;                // for text: the allowed values; empty: any
  std::optional<double> at_least, at_most, above;  // for numbers
  // Where the value lives in a Recipe.
  std::function<std::variant<bool*, int64_t*, double*, std::string*, AutoInt*>(Recipe&)> member;
  std::string pattern, form;  // for text that is neither free nor a list: a regular expression, and in words
  std::vector<std::string> also;  // what other trainers call it: only for "did you mean"
  Condition counts;               // when it has an effect
  bool list = false;              // for text: a TOML list is the same with commas between
  bool tables = false;            // of a list: its items may be tables, which read as "key=value key=value"
  enum class Names : uint8_t { nothing, input, output, sources };
  // For text: files that are read, a folder that is written, or sources of data.mix with their files.
  Names names = Names::nothing;

  std::string section() const { return name.substr(0, name.find('.')); }
  std::string last_part() const { return name.substr(name.find('.') + 1); }
};

struct Section {
  std::string name, meaning;
};

const std::vector<Section>& recipe_sections();  // in the order of the file
const std::vector<Key>& recipe_keys();          // in the order of the file
const Key* find_key(std::string_view name);
std::string nearest_key(std::string_view name);  // by edit distance; empty if nothing is near

std::string type_text(const Key& key);  // "a whole number or \"auto\""
std::string allowed_text(
    const Key& key);  // "above 0, at most 10", "one of adamw, sgd"; empty: anything of its type
std::string value_text(const Key& key, const Recipe& recipe);  // as TOML: 0.001, "auto", true
std::string default_text(const Key& key);
// Sets one key from its TOML text ("12", "auto", "gpt2"); ConfigError when it does not fit.
void set_value(Recipe& recipe, std::string_view key, const std::string& text);

constexpr const char* kCommandLine = "command line";  // as an origin
struct RecipeSource {
  std::string file = {};        // empty: defaults only, or the default recipe
  std::string text = {};        // without a file: the recipe itself
  bool default_recipe = false;  // without a file: read recipes/first.toml, which the program carries
  std::vector<std::string> overrides = {};  // key=value
};
struct Resolved {
  Recipe recipe;
  std::map<std::string, std::string>
      origin;  // key: "default", "first.toml:12", "command line", "preset 124m"
};
Resolved read_recipe(const RecipeSource& source);

// Whether the user chose this value: on the command line, or in a file of theirs with another value than
// the default. (A file from `lockstep init` names every key; one with its default value was not chosen.)
bool is_chosen(const Resolved& resolved, const Key& key);
// Chosen keys that have no effect in this run, a sentence each with the reason.
std::vector<std::string> keys_without_effect(const Resolved& resolved, const Circumstances& run);

std::string_view default_recipe();                        // the text of recipes/first.toml
constexpr const char* kDefaultRecipe = "default recipe";  // its name in `origin`, before the line
// What it says of slices gives way to a batch that the user has set.
void fit_default_recipe(Resolved& resolved);

std::string write_toml(const Recipe& recipe);  // every key: config.toml
std::string commented_recipe();                // `lockstep init`
std::string json_schema();                     // `lockstep schema`
std::vector<std::string> differing_keys(const Recipe& a, const Recipe& b);

}  // namespace lockstep::recipe
