// Recipes as people write them: what is read, what is refused and how, and what damaged files do.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::recipe {
namespace {

Resolved read_text(const std::string& text) {
  base::TemporaryFolder folder;
  return read_recipe({.file = folder.write("recipe.toml", text)});
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
           {"bf16=true", 101, "bf16 is not a recipe key; write precision.compute=bf16"},
           {"[trainer]\nmax_epochs = 3\n", 101,
            "toml:2: trainer.max_epochs is not a recipe key; training is counted"},
           {"data=corpus.txt", 102, "data is a section, not a value; set its keys: data.path=FILES"},
           {"foo.a=1", 101, "foo.a is not a recipe key; `lockstep explain`"},
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
           {"optim.name=adamm", 104, "one of adamw, sgd, lion, muon; did you mean adamw?"},
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
  for (const int count : {20, 21, 500}) {
    std::string many = "[optim]\n";
    for (int k = 0; k < count; ++k) many += fmt::format("wrong{} = 1\n", k);
    try {
      read_text(many);
      ADD_FAILURE() << "accepted";
    } catch (const base::ConfigError& error) {
      const std::string said = error.what(), left = fmt::format("\n  and {} more\n", count - 20);
      EXPECT_EQ(said.find(left) != std::string::npos, count > 20) << said;
      EXPECT_EQ(said.find(" more\n") != std::string::npos, count > 20) << said;
    }
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

}  // namespace
}  // namespace lockstep::recipe
