#include "lockstep/recipe/choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {
namespace {

constexpr const char* kTables[] = {"model.family", "model.activation", "data.kind",
                                   "optim.name",   "optim.schedule",   "parallel.engine"};

TEST(Choices, AreWhatTheKeyTakes) {
  for (const char* table : kTables) {
    std::vector<std::string> taken = find_key(table)->choices;
    std::erase(taken, "auto");
    EXPECT_EQ(taken, choice_names(table)) << table;
    EXPECT_FALSE(taken.empty()) << table;
  }
}

// A key that rows name is a key, and says with which of them it counts.
TEST(Choices, RowsNameKeysWithACondition) {
  for (const char* table : kTables) {
    for (const Choice& choice : choices_of(table)) {
      for (const std::string& name : choice.reads) {
        const Key* key = find_key(name);
        ASSERT_NE(key, nullptr) << choice.name << " reads " << name;
        EXPECT_NE(key->counts.when.find(table), std::string::npos)
            << choice.name << " reads " << name << ", which counts with " << key->counts.when;
      }
    }
  }
}

// And the condition is broken for exactly the rows that do not name it, when nothing else is amiss.
TEST(Choices, AKeyCountsForTheRowsThatReadIt) {
  for (const char* table : kTables) {
    std::set<std::string> keys;
    for (const Choice& choice : choices_of(table)) keys.insert(choice.reads.begin(), choice.reads.end());
    for (const std::string& key : keys) {
      for (const Choice& choice : choices_of(table)) {
        Recipe recipe;
        recipe.model.rope_scaling = 2,
        recipe.model.rope_type = key == "model.rope_low_freq" ? "llama3" : "yarn";
        if (key.ends_with("_factor")) recipe.model.rope_type = "longrope";
        recipe.model.sliding_window = 4;
        recipe.model.kv_heads = 1, recipe.model.head_dim = 8;
        set_value(recipe, table, choice.name);
        const bool reads = std::find(choice.reads.begin(), choice.reads.end(), key) != choice.reads.end();
        EXPECT_EQ(find_key(key)->counts.broken({.recipe = recipe}).empty(), reads)
            << key << " with " << table << " = " << choice.name;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::recipe
