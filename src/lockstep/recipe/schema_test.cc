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

TEST(ReadRecipe, SaysWhereEachValueCameFrom) {
  base::TemporaryFolder folder;
  const std::string file = folder.write("a.toml", "[optim]\nlr = 1e-3\n\n[run]\nseed = 3\n");
  const Resolved read = read_recipe({.file = file, .overrides = {"run.seed=4", "model.preset=124m"}});
  EXPECT_EQ(read.recipe.optim.lr, 1e-3);
  EXPECT_EQ(read.recipe.run.seed, 4);
  EXPECT_EQ(read.recipe.model.preset, "124m");
  EXPECT_EQ(read.origin.at("optim.lr"), file + ":2");
  EXPECT_EQ(read.origin.at("run.seed"), "command line");
  EXPECT_EQ(read.origin.at("run.steps"), "default");
  EXPECT_EQ(differing_keys(read.recipe, Recipe{}),
            (std::vector<std::string>{"run.seed", "model.preset", "optim.lr"}));
}

TEST(ReadRecipe, AcceptsWhatPeopleWrite) {
  struct Row {
    const char* override_;
    const char* key;
    const char* value;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"optim.lr=1e-3", "optim.lr", "0.001"},
           {"optim.lr = 1", "optim.lr", "1.0"},
           {"run.steps=1_000_000", "run.steps", "1000000"},
           {"run.steps=1e6", "run.steps", "1000000"},
           {"precision.loss_scale=65536", "precision.loss_scale", "65536.0"},
           {"batch.slices=auto", "batch.slices", "\"auto\""},
           {"batch.slices=\"auto\"", "batch.slices", "\"auto\""},
           {"batch.slices=8", "batch.slices", "8"},
           {"run.exact=false", "run.exact", "false"},
           {"run.name=2024", "run.name", "\"2024\""},
           {"run.name=true", "run.name", "\"true\""},
           {"data.path=a=b.txt", "data.path", "\"a=b.txt\""},
           {"data.path=", "data.path", "\"\""},
           {"parallel.zero=2", "parallel.zero", "\"2\""},
           {"run.device=cuda:3", "run.device", "\"cuda:3\""},
           {"memory.recompute=attention,up", "memory.recompute", "\"attention,up\""},
       }) {
    const Resolved read = read_recipe({.overrides = {row.override_}});
    EXPECT_EQ(value_text(*find_key(row.key), read.recipe), row.value) << row.override_;
  }
  EXPECT_EQ(read_text("parallel.zero = 2").recipe.parallel.zero, "2");
}

struct Refusal {
  const char* text;  // a file, or an override if it does not end with a newline
  int number;
  const char* says;
};

TEST(ReadRecipe, RefusesWithTheKeyTheExpectationAndTheRemedy) {
  std::string many_parts = "[run]\n[a";
  for (int part = 0; part < 100; ++part) many_parts += ".b";
  many_parts += "]\n";
  for (const Refusal& row : std::initializer_list<Refusal>{
           {"[optim]\nlearning_rate = 1\n", 101,
            "toml:2: optim.learning_rate is not a recipe key; did you mean optim.lr?"},
           {"optim.learning_rate=1", 101, "optim.learning_rate is not a recipe key; did you mean optim.lr?"},
           {"lr=1", 101, "lr is not a recipe key; did you mean optim.lr?"},
           {"optim.lrr=1", 101, "did you mean optim.lr?"},
           {"train.max_steps=1", 101, "did you mean run.steps?"},
           {"[optm]\nlr = 1\n", 101, "did you mean optim.lr?"},
           {"[optm]\n", 101, "did you mean [optim]?"},
           {"[banana]\n", 101, "sections are run, model"},
           {"zzzzzzzzzz.qqqqqqqqqq=1", 101, "`lockstep explain` lists the keys"},
           {"\"optim.lr\" = 1\n", 101, "is not a recipe key"},
           {"optim = 3\n", 102, "optim is a section, not a value"},
           {"optim=3", 102, "optim is a section, not a value"},
           {"[optim.lr]\nx = 3\n", 102, "optim.lr is a key with a value, not a section"},
           {"[optim]\nlr = {}\n", 102, "optim.lr is a key with a value"},
           {"[[optim]]\nlr = 1\n", 102, "optim is a section, not a value"},
           {"[model]\nlayers = \"four\"\n", 102,
            "toml:2) is a string; expected an integer, for example model.layers = 12"},
           {"model.layers=four", 102, "model.layers = \"four\" (command line) is a string"},
           {"model.layers=", 102, "expected an integer"},
           {"model.layers=3.5", 102, "is a floating-point number"},
           {"model.layers=[1, 2]", 102, "is a list"},
           {"model.layers=1979-05-27", 102, "is a date"},
           {"model.layers=1e300", 102, "expected an integer"},
           {"batch.slices=many", 102, "expected an integer or \"auto\""},
           {"run.exact=yes", 102, "expected true or false"},
           {"run.name = 3\n", 102, "expected a string"},
           {"model.layers=0", 103, "is out of range; expected at least 1, at most 4096"},
           {"model.layers=-4", 103, "out of range"},
           {"optim.epsilon=0", 103, "expected above 0"},
           {"optim.lr=1e400", 103, "is too large"},
           {"run.steps=99999999999999999999", 103, "is too large"},
           {"run.seed=-18446744073709551615", 103, "is too large"},
           {"run.steps=0x99999999999999999999z", 102, "is a string"},
           {"[run]\nsteps = \"5\"\n", 102, "is a string"},
           {"optim.lr=nan", 103, "out of range"},
           {"optim.lr=inf", 103, "out of range"},
           {"optim.name=adamm", 104, "one of adamw, sgd, lion; did you mean adamw?"},
           {"parallel.zero=4", 104, "one of 0, 1, 2, 3"},
           {"run.device=gpu", 104, "auto, cpu, cuda or cuda:N"},
           {"run.name=../../etc", 104, "letters, digits"},
           {"run.name=", 104, "letters, digits"},
           {"data.path = \"a\\u0000b\"\n", 104, "control characters"},
           {"[run\nname = 1\n", 105, "toml:1:5: not valid TOML"},
           {"[run]\nseed = 1\nseed = 2\n", 105, "toml:3:"},
           {many_parts.c_str(), 105, "toml:2:131: "},
           {"run.name = \"\xFF\"\n", 105, "not valid TOML"},
           {"optim.lr", 107, "\"optim.lr\" is not an override; write key=value"},
           {"=3", 107, "write key=value"},
           {"run.seed=1\nmodel.layers = 2", 102, "is a string"},
       }) {
    SCOPED_TRACE(row.text);
    const bool is_file = std::string(row.text).ends_with("\n");
    try {
      is_file ? read_text(row.text) : read_recipe({.overrides = {row.text}});
      ADD_FAILURE() << "accepted";
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), row.number) << error.what();
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
  }
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

TEST(ReadRecipe, NamesAllMistakesAtOnce) {
  base::TemporaryFolder folder;
  const std::string file = folder.write("a.toml",
                                        "[optim]\nlrr = 1\nwarmup = 3\n[model]\nlayers = \"four\"\n"
                                        "[banana]\nx = 1\n[batch]\nglobal = -1\n");
  try {
    read_recipe({.file = file, .overrides = {"run.seed=-1", "run.steps=5", "optim.name=adamm"}});
    ADD_FAILURE() << "accepted";
  } catch (const base::ConfigError& error) {
    const std::string said = error.what();
    EXPECT_EQ(error.number(), 112);
    for (const char* part :
         {"6 errors", "a.toml:2: optim.lrr is not a recipe key; did you mean optim.lr? [LS0101]\n",
          "a.toml:5) is a string", "a.toml:7: banana.x", "batch.global = -1", "run.seed = -1 (command line)",
          "did you mean adamw? [LS0104]", "[LS0112]"}) {
      EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
    }
  }
  std::string many = "[optim]\n";
  for (int k = 0; k < 500; ++k) many += fmt::format("wrong{} = 1\n", k);
  try {
    read_text(many);
    ADD_FAILURE() << "accepted";
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("and 480 more"), std::string::npos) << error.what();
  }
}

TEST(ReadRecipe, TakesListsWhereTextHasCommas) {
  const Resolved read = read_text(
      "[data]\npath = [\"a.txt\", \"b,c.txt\"]\n[parallel]\nstages = [6, 8]\n[memory]\nrecompute = "
      "[\"attention\", \"up\"]\n");
  EXPECT_EQ(read.recipe.data.path, "a.txt,b\\,c.txt");
  EXPECT_EQ(read.recipe.parallel.stages, "6,8");
  EXPECT_EQ(read.recipe.memory.recompute, "attention,up");
  EXPECT_EQ(read_recipe({.overrides = {"data.path=[\"a\", \"b\"]"}}).recipe.data.path, "a,b");
  EXPECT_EQ(read_recipe({.overrides = {"data.path=[1]"}}).recipe.data.path, "[1]") << "a pattern";
  EXPECT_EQ(read_recipe({.overrides = {"parallel.stages=[6,8]"}}).recipe.parallel.stages, "6,8");
  std::string many, same;
  for (int file = 0; file < 1000; ++file) {
    many += fmt::format("\"part-{:06}.bin\", ", file);
    same += fmt::format("{}part-{:06}.bin", file == 0 ? "" : ",", file);
  }
  EXPECT_EQ(read_text("data.path = [" + many + "]\n").recipe.data.path, same);
  EXPECT_THROW(read_text("data.path = \"" + std::string(1 << 19, 'a') + "\"\n"), base::ConfigError);
  for (const char* text : {"run.name = [\"a\"]\n", "data.path = [1]\n", "data.path = [[\"a\"]]\n",
                           "data.path = [\"a\", 1]\n", "memory.recompute = [\"No\"]\n"})
    EXPECT_THROW(read_text(text), base::ConfigError) << text;
}

// A batch that the user has set is not refused because of what the built-in recipe says of slices.
TEST(ReadRecipe, TheDefaultRecipeGivesWay) {
  struct Row {
    const char* word;
    int64_t slices;
  };
  for (const Row& row : std::initializer_list<Row>{{"batch.global=64", 8},
                                                   {"batch.global=12", 6},
                                                   {"batch.global=7", 7},
                                                   {"batch.global=13", 1},
                                                   {"batch.slices=2", 2},
                                                   {"batch.global=1", 1},
                                                   {"batch.strands=4", 8},
                                                   {"batch.strands=16", 16},
                                                   {"batch.strands=5", 8}}) {
    const Resolved read = read_recipe({.default_recipe = true, .overrides = {row.word}});
    EXPECT_EQ(read.recipe.batch.slices, AutoInt(row.slices)) << row.word;
  }
  const Resolved read =
      read_recipe({.default_recipe = true, .overrides = {"batch.slices=8", "batch.global=12"}});
  EXPECT_EQ(read.recipe.batch.slices, AutoInt(8)) << "said by the user, who hears that it does not fit";
}

TEST(ReadRecipe, AnUnreadableFileIsRefused) {
  base::TemporaryFolder folder;
  const std::string large = folder.write("large.toml", std::string(2 << 20, '#'));
  for (const std::string& path :
       {folder.path() + "/missing.toml", folder.path(), large, std::string("/dev/zero")}) {
    try {
      read_recipe({.file = path});
      ADD_FAILURE() << path;
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 106) << error.what();
    }
  }
}

// Keys of very many parts are refused before they are walked, however strings stand around them; dots in
// values are no parts of keys.
TEST(ReadRecipe, DeepKeysDoNotHideBehindStrings) {
  std::string deep = "b";
  for (int part = 0; part < 200; ++part) deep += ".b";
  for (const char* before :
       {"", "x = \"a\"\n", "x = '''\n'\n'''\n", "x = \"\"\"\na\"\"\"\"\n", "x = \"\\\"\" # \"\n", "# '\n",
        "x = { y = \"\"\"\n\"\"\", ", "x = { y = \"\"\"\n\"\"\"\"\", ", "x = { y = '''\n'''', "}) {
    const std::string said = base::refusal(105, [&] { read_text(before + deep + " = 1\n"); });
    EXPECT_NE(said.find("more than 64 dots"), std::string::npos) << before << ": " << said;
  }
  const std::string dots(200, '.');
  for (const std::string& text : {"\"" + dots + "\"", "'" + dots + "'", "\"\\\"" + dots + "\" # " + dots,
                                  "[\"" + dots + "\",\n'" + dots + "']"})
    EXPECT_EQ(base::number_of_refusal([&] { read_text("data.path = " + text + "\n"); }), 0) << text;
}

// Bytes from outside never crash: they are read or refused.
TEST(ReadRecipe, SurvivesDamagedFiles) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const std::string whole = write_toml(Recipe{});
  for (int round = 0; round < 500; ++round) {
    std::string text = whole;
    for (int edits = 1 + static_cast<int>(random() % 8); edits > 0; --edits) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    try {
      read_text(text);
    } catch (const base::ConfigError&) {
    }
  }
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
