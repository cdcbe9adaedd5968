#include "lockstep/recipe/schema.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::recipe {
namespace {

Resolved read_text(const std::string& text) {
  base::TemporaryFolder folder;
  return read_recipe({.file = folder.write("recipe.toml", text)});
}

// Anything converts to this, so T{Any, Any, ...} compiles for as many as T has members.
struct Any {
  template <class T>
  operator T() const;  // NOLINT: never defined, only named
};
template <class T, class... Members>
constexpr size_t count_members() {
  if constexpr (requires { T{Members{}..., Any{}}; }) {
    return count_members<T, Members..., Any>();
  } else {
    return sizeof...(Members);
  }
}

size_t rows_of(const std::string& section) {
  size_t rows = 0;
  for (const Key& key : recipe_keys()) rows += key.section() == section;
  return rows;
}

TEST(RecipeKeys, EveryMemberHasARow) {
  EXPECT_EQ(rows_of("run"), count_members<Recipe::Run>());
  EXPECT_EQ(rows_of("model"), count_members<Recipe::Model>());
  EXPECT_EQ(rows_of("data"), count_members<Recipe::Data>());
  EXPECT_EQ(rows_of("batch"), count_members<Recipe::Batch>());
  EXPECT_EQ(rows_of("optim"), count_members<Recipe::Optim>());
  EXPECT_EQ(rows_of("tune"), count_members<Recipe::Tune>());
  EXPECT_EQ(rows_of("precision"), count_members<Recipe::Precision>());
  EXPECT_EQ(rows_of("parallel"), count_members<Recipe::Parallel>());
  EXPECT_EQ(rows_of("memory"), count_members<Recipe::Memory>());
  EXPECT_EQ(rows_of("log"), count_members<Recipe::Log>());
  EXPECT_EQ(recipe_sections().size(), count_members<Recipe>());
}

TEST(RecipeKeys, EveryRowIsCompleteAndItsExampleIsAccepted) {
  std::set<std::string> names;
  for (const Key& key : recipe_keys()) {
    SCOPED_TRACE(key.name);
    EXPECT_TRUE(names.insert(key.name).second) << "twice in the table";
    EXPECT_EQ(find_key(key.name), &key);
    EXPECT_GT(key.meaning.size(), 10u);
    EXPECT_TRUE(key.meaning.ends_with("."));
    ASSERT_TRUE(key.example.starts_with(key.name + " = "));
    const Resolved from_file = read_text(key.example);
    EXPECT_EQ(from_file.origin.at(key.name).substr(from_file.origin.at(key.name).size() - 2), ":1");
    const Resolved from_line = read_recipe({.overrides = {key.example}});
    EXPECT_EQ(from_line.origin.at(key.name), "command line");
    EXPECT_TRUE(differing_keys(from_file.recipe, from_line.recipe).empty());
    // The default must itself be allowed.
    read_recipe({.overrides = {key.name + "=" + default_text(key)}});
    for (const std::string& choice : key.choices) {
      read_recipe({.overrides = {key.name + "=" + choice}});
    }
  }
}

// A random value that the key's row allows.
struct RandomValue {
  const Key& key;
  std::mt19937_64& random;

  double between(double low, double high) const {
    return std::uniform_real_distribution<>(low, high)(random);
  }
  int64_t integer() const {
    const int64_t low = static_cast<int64_t>(key.at_least.value_or(-1e15));
    const double high = key.at_most.value_or(1e15);
    return std::uniform_int_distribution<int64_t>(low, static_cast<int64_t>(high))(random);
  }
  void operator()(bool* value) const { *value = random() & 1; }
  void operator()(int64_t* value) const { *value = integer(); }
  void operator()(AutoInt* value) const { *value = random() & 1 ? AutoInt() : AutoInt(integer()); }
  void operator()(double* value) const {
    const double low = key.above.value_or(key.at_least.value_or(-1e9));
    const double draw = low + (key.at_most.value_or(1e9) - low) * std::pow(10.0, between(-12, 0));
    *value = std::min(draw, *key.at_most);
  }
  void operator()(std::string* value) const {
    if (!key.choices.empty()) {
      *value = key.choices[random() % key.choices.size()];
    } else if (key.pattern.empty()) {
      std::string letters = "ab\"\\ '#=[]{}\xC3\xA9/.-";
      if (key.names == Key::Names::nothing) letters += '~';  // else the home folder, which is not read back
      value->clear();
      for (size_t n = random() % 12; n > 0; --n) {
        const char c = letters[random() % letters.size()];
        *value += c == '\xC3' || c == '\xA9' ? "\xC3\xA9" : std::string(1, c);
      }
    }
  }
};

TEST(WriteToml, RandomRecipesReadBackEqual) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  base::TemporaryFolder folder;
  folder.write("record.json", "{}");  // a run's folder: its paths start where the run did
  for (int round = 0; round < 100; ++round) {
    Recipe recipe;
    for (const Key& key : recipe_keys()) std::visit(RandomValue{key, random}, key.member(recipe));
    const std::string text = write_toml(recipe);
    const Recipe again = read_recipe({.file = folder.write("config.toml", text)}).recipe;
    EXPECT_EQ(differing_keys(recipe, again), std::vector<std::string>{}) << text;
    EXPECT_EQ(recipe.optim.lr, again.optim.lr) << "bits, not text";
    EXPECT_EQ(write_toml(again), text);
  }
}

TEST(CommentedRecipe, ReadsBackToTheDefaultsAndNamesEveryKey) {
  const std::string text = commented_recipe();
  const Resolved read = read_text(text);
  EXPECT_TRUE(differing_keys(read.recipe, Recipe{}).empty());
  for (const auto& [key, origin] : read.origin) EXPECT_NE(origin, "default") << key;
}

// Each limit of each row, just inside and just outside.
TEST(RecipeKeys, EveryLimitHolds) {
  const auto refusal_of = [](const Key& key, double value) {
    Recipe recipe;
    const bool whole = key.type == Key::Type::integer || key.type == Key::Type::auto_integer;
    return base::number_of_refusal(
        [&] { set_value(recipe, key.name, whole ? fmt::format("{:.0f}", value) : toml_number(value)); });
  };
  int limits = 0;
  for (const Key& key : recipe_keys()) {
    SCOPED_TRACE(key.name);
    const bool whole = key.type == Key::Type::integer || key.type == Key::Type::auto_integer;
    const auto past = [&](double limit, double towards) {
      return whole ? limit + (towards > 0 ? 1 : -1) : std::nextafter(limit, towards * HUGE_VAL);
    };
    for (const auto& [limit, towards] : {std::pair(key.at_least, -1.0), std::pair(key.at_most, 1.0)}) {
      if (!limit || std::abs(*limit) > 1e15) continue;
      EXPECT_EQ(refusal_of(key, *limit), 0) << *limit;
      EXPECT_EQ(refusal_of(key, past(*limit, towards)), 103) << "beyond " << *limit;
      ++limits;
    }
    if (key.above) {
      EXPECT_EQ(refusal_of(key, *key.above), 103) << *key.above;
      EXPECT_EQ(refusal_of(key, past(*key.above, 1)), 0) << "above " << *key.above;
      ++limits;
    }
  }
  EXPECT_GT(limits, 50);
}

bool has_type(const nlohmann::json& value, const std::string& type) {
  if (type == "integer") return value.is_number() && value.get<double>() == std::trunc(value.get<double>());
  if (type == "number") return value.is_number();
  if (type == "array") return value.is_array();
  return type == "boolean" ? value.is_boolean() : value.is_string();
}

// As much of JSON Schema as ours uses.
bool is_valid(const nlohmann::json& value, const nlohmann::json& schema) {
  if (schema.contains("anyOf")) {
    const auto& any = schema["anyOf"];
    return std::any_of(any.begin(), any.end(), [&](const auto& one) { return is_valid(value, one); });
  }
  if (schema.contains("const")) return value == schema["const"];
  const auto types = schema["type"].is_array() ? schema["type"] : nlohmann::json::array({schema["type"]});
  if (std::none_of(types.begin(), types.end(), [&](const auto& type) { return has_type(value, type); }))
    return false;
  const auto& choices = schema.value("enum", nlohmann::json::array());
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) return false;
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(),
                       [&](const auto& item) { return is_valid(item, schema["items"]); });
  }
  if (value.is_string() && schema.contains("pattern"))
    return std::regex_match(value.get<std::string>(), std::regex(schema["pattern"].get<std::string>()));
  if (!value.is_number()) return true;
  const double number = value;
  return number >= schema.value("minimum", number) && number <= schema.value("maximum", number) &&
         (!schema.contains("exclusiveMinimum") || number > schema["exclusiveMinimum"].get<double>());
}

// What the program takes from a file, an editor that has the schema takes too, and what one refuses the other
// does.
TEST(JsonSchema, AcceptsWhatTheProgramAccepts) {
  const auto schema = nlohmann::json::parse(json_schema());
  const std::vector<std::string> values = {
      "true",     "0",         "1",          "2",           "3",     "4",           "1e6",
      "0.5",      "-1",        "2.0",        "\"auto\"",    "\"3\"", "\"4\"",       "\"full\"",
      "\"none\"", "\"adamw\"", "\"1f1b\"",   "\"a.txt\"",   "\"\"",  "[\"a.txt\"]", "[\"up\", \"a\"]",
      "[6, 8]",   "\"6,8\"",   "\"cuda:1\"", "\"every-2\"",
  };
  size_t accepted = 0;
  for (const Key& key : recipe_keys()) {
    const auto& row = schema["properties"][key.section()]["properties"][key.last_part()];
    for (const std::string& value : values) {
      const bool takes = base::number_of_refusal([&] { read_text(key.name + " = " + value + "\n"); }) == 0;
      const bool valid = is_valid(nlohmann::json::parse(value), row);
      EXPECT_TRUE(valid || !takes) << key.name << " = " << value << " is taken, against the schema";
      // Of lists the schema knows the items only, and 2.0 is a whole number to it, also among choices.
      const bool coarse = value[0] == '[' || (value == "2.0" && !key.choices.empty());
      EXPECT_TRUE(takes || !valid || coarse)
          << key.name << " = " << value << " is refused, against the schema";
      accepted += takes;
    }
  }
  EXPECT_GT(accepted, 200u);
}

TEST(JsonSchema, HasEveryKeyWithItsLimits) {
  const auto schema = nlohmann::json::parse(json_schema());
  EXPECT_FALSE(schema["additionalProperties"]);
  for (const Key& key : recipe_keys()) {
    SCOPED_TRACE(key.name);
    const auto& section = schema["properties"][key.section()];
    EXPECT_FALSE(section["additionalProperties"]);
    const auto& row = section["properties"][key.last_part()];
    ASSERT_TRUE(row.is_object());
    EXPECT_EQ(row["description"], key.meaning);
    EXPECT_TRUE(row.contains("default"));
    EXPECT_EQ(row.contains("enum"), !key.choices.empty());
    if (key.type == Key::Type::number) {
      EXPECT_EQ(row.contains("maximum"), key.at_most.has_value());
    }
    if (key.type == Key::Type::auto_integer) {
      EXPECT_EQ(row["anyOf"][1]["const"], "auto");
    }
  }
}

}  // namespace
}  // namespace lockstep::recipe
