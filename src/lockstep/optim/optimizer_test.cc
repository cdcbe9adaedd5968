#include "lockstep/optim/optimizer.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::optim {
namespace {

void stand_still(const kernels::OwnUpdate&) {}

OptimizerKind row(const std::string& name) {
  return {.name = name,
          .describe = "for tests",
          .own = stand_still,
          .constants = [](const recipe::Recipe::Optim& o) { return RuleConstants{.beta1 = o.momentum}; },
          .state =
              [](const device::Shape& of) {
                return element_state({"m", "v"}, of);
              }};
}

// Added before anything looks at the table.
[[maybe_unused]] const bool kAdded = (register_optimizer(row("lazy")), true);

TEST(Optimizers, ARecipeGetsItsRow) {
  struct Row {
    const char* name;
    kernels::UpdateRule rule;
    int moments;
    float beta1;
  };
  for (const Row& expected :
       {Row{"adamw", kernels::UpdateRule::adamw, 2, 0.8f}, Row{"sgd", kernels::UpdateRule::sgd, 1, 0.7f},
        Row{"lion", kernels::UpdateRule::lion, 1, 0.8f}, Row{"lazy", kernels::UpdateRule::own, 2, 0.7f}}) {
    const Optimizer made =
        make_optimizer(recipe::read_recipe({.overrides = {std::string("optim.name=") + expected.name,
                                                          "optim.beta1=0.8", "optim.momentum=0.7"}})
                           .recipe,
                       false);
    ASSERT_EQ(made.rules.size(), 1u) << expected.name;
    const Rule& rule = made.rules[0];
    EXPECT_EQ(rule.kind->rule, expected.rule) << expected.name;
    EXPECT_EQ(static_cast<int>(rule.kind->state({1}).size()), expected.moments) << expected.name;
    EXPECT_EQ(rule.beta1, expected.beta1) << expected.name;
    EXPECT_EQ(rule.kind->own != nullptr, expected.rule == kernels::UpdateRule::own) << expected.name;
  }
  recipe::Recipe unknown;
  unknown.optim.name = "mouun";
  EXPECT_NE(
      base::refusal(141, [&] { make_optimizer(unknown, false); }).find("adamw, sgd, lion, muon or lazy"),
      std::string::npos);
}

// A row that is not for all parameters brings the one that gets the others, and Adam's betas are those of the
// bias corrections, whoever is named first.
TEST(Optimizers, RulesOfGroupsAndOfWhatTheyLeave) {
  const auto made = [](std::vector<std::string> words) {
    words.push_back("optim.beta1=0.8");
    return make_optimizer(recipe::read_recipe({.overrides = words}).recipe, false);
  };
  const Optimizer muon = made({"optim.name=muon", "optim.momentum=0.7"});
  ASSERT_EQ(muon.rules.size(), 2u);
  EXPECT_EQ(muon.policy.beta1, 0.8f);
  EXPECT_EQ(muon.rules[0].beta1, 0.7f);
  EXPECT_EQ(muon.rule_for("", {.shape = {3, 4}}), 0);
  EXPECT_EQ(muon.rule_for("", {.shape = {3, 4}, .table = true}), 1);
  EXPECT_EQ(muon.rule_for("", {.shape = {4}}), 1);
  const Optimizer groups = made({"optim.name=sgd", "optim.groups=a kind=lion,b kind=muon,c kind=sgd"});
  ASSERT_EQ(groups.rules.size(), 4u);
  EXPECT_EQ(groups.rules[groups.rule_for("muon", {.shape = {4}})].kind->name, "adamw");
  EXPECT_EQ(groups.rule_for("", {.shape = {4}}), 0);
  EXPECT_EQ(groups.rule_for("lion", {.shape = {4}}), 1);
  EXPECT_EQ(groups.policy.beta1, 0.8f);
}

std::string why_refused(const OptimizerKind& kind) {
  try {
    register_optimizer(kind);
  } catch (const base::Bug& bug) {
    return bug.what();
  }
  return "";
}

// What nobody could carry out is refused when it is registered, not when it has trained.
TEST(Optimizers, RowsThatNobodyCouldRunAreRefused) {
  OptimizerKind whole = row("whole");
  whole.needs_whole = [](const device::Shape& shape) { return shape.rank() == 2; };
  EXPECT_NE(why_refused(whole).find("rule for whole parameters"), std::string::npos) << why_refused(whole);
  OptimizerKind many = row("many");
  many.state = [](const device::Shape& of) {
    return element_state({"a", "b", "c", "d", "e", "f", "g", "h", "i"}, of);
  };
  EXPECT_NE(why_refused(many).find("at most 8"), std::string::npos) << why_refused(many);
  OptimizerKind rows = row("rows");  // as Adafactor keeps a value for each row, but without seeing all of it
  rows.state = [](const device::Shape& of) { return element_state({"r"}, {of[0] + 1}); };
  EXPECT_NE(why_refused(rows).find("for each element"), std::string::npos) << why_refused(rows);
  OptimizerKind none = row("none");
  none.own = nullptr;
  EXPECT_NE(why_refused(none).find("lacks its rule"), std::string::npos) << why_refused(none);
}

}  // namespace
}  // namespace lockstep::optim
