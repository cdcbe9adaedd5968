// A key that is said to have no effect has none: for every family, each key of [model] that it does not read
// is set, and the weights after two steps are those without it.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/registry.h"
#include "lockstep/model/families/family.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

std::string hash_with(const std::vector<std::string>& words) {
  Session session(make_plan(tiny_recipe(words), {}));
  Observer nobody;
  return train(session, {}, nobody).params_hash;
}

// A value that it does not have by itself; empty: none that is surely allowed.
std::string another_value(const recipe::Key& key) {
  switch (key.type) {
    case recipe::Key::Type::boolean:
      return recipe::default_text(key) == "true" ? "false" : "true";
    case recipe::Key::Type::integer:
    case recipe::Key::Type::auto_integer:
      return "3";
    case recipe::Key::Type::number:
      return "0.75";
    case recipe::Key::Type::text:
      break;
  }
  for (const std::string& choice : key.choices) {
    if ('"' + choice + '"' != recipe::default_text(key)) return choice;
  }
  return "";
}

class UnreadKeys : public testing::TestWithParam<std::string> {};

TEST_P(UnreadKeys, HaveNoEffect) {
  const std::vector<std::string> words = {"model.family=" + GetParam(), "run.steps=2"};
  const Plan plan = make_plan(tiny_recipe(words), {});
  const std::string usual = hash_with(words);
  int tried = 0;
  for (const recipe::Key& key : recipe::recipe_keys()) {
    const bool unread = key.section() == "model" && key.counts.broken &&
                        !key.counts.broken({.recipe = plan.recipe()}).empty();
    const std::string value = unread ? another_value(key) : "";
    if (value.empty()) continue;
    std::vector<std::string> more = words;
    more.push_back(key.name + "=" + value);
    try {
      EXPECT_EQ(hash_with(more), usual) << more.back();
      ++tried;
    } catch (const base::ConfigError&) {
      // Refused: nobody is misled.
    }
  }
  EXPECT_GE(tried, 2);
}

INSTANTIATE_TEST_SUITE_P(Families, UnreadKeys, testing::ValuesIn(base::names_of(model::families())),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace lockstep::run
