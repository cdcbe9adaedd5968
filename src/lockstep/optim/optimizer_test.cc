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
    EXPECT_EQ(made.rule, expected.rule) << expected.name;
    EXPECT_EQ(made.moments, expected.moments) << expected.name;
    EXPECT_EQ(made.beta1, expected.beta1) << expected.name;
    EXPECT_EQ(made.own != nullptr, expected.rule == kernels::UpdateRule::own) << expected.name;
  }
  recipe::Recipe unknown;
  unknown.optim.name = "muon";
  EXPECT_NE(base::refusal(141, [&] { make_optimizer(unknown, false); }).find("adamw, sgd, lion or lazy"),
            std::string::npos);
}

std::string why_refused(const OptimizerKind& kind) {
  try {
    register_optimizer(kind);
  } catch (const base::Bug& bug) {
    return bug.what();
  }
  return "";
}

// What the step program cannot carry out yet is refused when it is registered, not when it has trained.
TEST(Optimizers, RowsThatNobodyCouldRunAreRefused) {
  OptimizerKind whole = row("whole");
  whole.needs_whole = [](const device::Shape& shape) { return shape.rank() == 2; };
  EXPECT_NE(why_refused(whole).find("updates chunks"), std::string::npos) << why_refused(whole);
  OptimizerKind many = row("many");
  many.state = [](const device::Shape& of) { return element_state({"a", "b", "c"}, of); };
  EXPECT_NE(why_refused(many).find("one or two moments"), std::string::npos) << why_refused(many);
  OptimizerKind rows = row("rows");  // as Adafactor keeps a value for each row
  rows.state = [](const device::Shape& of) { return element_state({"r"}, {of[0]}); };
  EXPECT_NE(why_refused(rows).find("for each element"), std::string::npos) << why_refused(rows);
  OptimizerKind none = row("none");
  none.own = nullptr;
  EXPECT_NE(why_refused(none).find("has no update rule"), std::string::npos) << why_refused(none);
}

}  // namespace
}  // namespace lockstep::optim
