#include "lockstep/recipe/groups.h"

#include <gtest/gtest.h>

#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {
namespace {

TEST(ParamGroups, ReadAndWrite) {
  for (const char* text :
       {"", "a.* lr_scale=0.1", "a.* weight_decay=0 frozen=true,*.b kind=sgd lr_scale=1e-3",
        "x[ab]?.* frozen=false"}) {
    const std::vector<ParamGroup> groups = read_groups(text);
    const std::vector<ParamGroup> again = read_groups(write_groups(groups));
    ASSERT_EQ(groups.size(), again.size()) << text;
    for (size_t k = 0; k < groups.size(); ++k) {
      EXPECT_EQ(groups[k].match, again[k].match);
      EXPECT_EQ(groups[k].lr_scale, again[k].lr_scale);
      EXPECT_EQ(groups[k].weight_decay, again[k].weight_decay);
      EXPECT_EQ(groups[k].frozen, again[k].frozen);
      EXPECT_EQ(groups[k].kind, again[k].kind);
    }
  }
  EXPECT_EQ(read_groups("match=*.b lr_scale=2 ; c frozen").at(1).frozen, true);
  EXPECT_EQ(read_groups("match=*.b lr_scale=2").at(0).lr_scale, 2.0);
}

// Every way to write them is the same key.
TEST(ParamGroups, TablesListsAndText) {
  const auto groups = [](const RecipeSource& source) { return read_recipe(source).recipe.optim.groups; };
  const std::string expected = write_groups(read_groups("*.bias weight_decay=0,w.* lr_scale=0.5 kind=lion"));
  const auto same = [&](const std::string& text) {
    EXPECT_EQ(write_groups(read_groups(text)), expected) << text;
  };
  same(groups({.text = "[[optim.groups]]\nmatch = \"*.bias\"\nweight_decay = 0\n[[optim.groups]]\n"
                       "lr_scale = 0.5\nmatch = \"w.*\"\nkind = \"lion\"\n"}));
  same(groups({.text = "[optim]\ngroups = [{match = \"*.bias\", weight_decay = 0}, {match = \"w.*\", kind = "
                       "\"lion\", lr_scale = 0.5}]\n"}));
  same(groups({.text = "[optim]\ngroups = [\"*.bias weight_decay=0\", \"w.* lr_scale=0.5 kind=lion\"]\n"}));
  same(groups({.overrides = {"optim.groups=*.bias weight_decay=0, w.* lr_scale=0.5 kind=lion"}}));
  same(
      groups({.overrides = {"optim.groups=[{match=\"*.bias\", weight_decay=0}, {match=\"w.*\", lr_scale=0.5, "
                            "kind=\"lion\"}]"}}));
  // Tables are for keys that take them.
  EXPECT_THROW(read_recipe({.text = "[[data.path]]\na = 1\n"}), std::exception);
  EXPECT_THROW(read_recipe({.text = "[[optim.groups]]\nmatch = [\"a\"]\n"}), std::exception);
}

TEST(ParamGroups, Patterns) {
  EXPECT_TRUE(matches("*.bias", "a.b.bias"));
  EXPECT_TRUE(matches("a.?.*", "a.1.w.x"));
  EXPECT_TRUE(matches("*[qk]_proj*", "l.k_proj.weight"));
  EXPECT_FALSE(matches("*.bias", "a.bias_2"));
  EXPECT_EQ(read_patterns(" a.*, b ,,c"), (std::vector<std::string>{"a.*", "b", "c"}));
  EXPECT_EQ(read_patterns("a b,c"), (std::vector<std::string>{"a", "b", "c"}));
}

}  // namespace
}  // namespace lockstep::recipe
