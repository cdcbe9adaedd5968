#include "lockstep/plan/cheap.h"

#include <gtest/gtest.h>

#include "lockstep/model/families/family.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::plan {
namespace {

double share_of(const std::vector<std::string>& overrides, const std::string& machine) {
  recipe::Resolved resolved = recipe::read_recipe({.file = "", .overrides = overrides});
  model::resolve_model(resolved, 256);
  const model::Model model = model::build_model(resolved.recipe, device::DType::bf16, {});
  return cheap_share(model, {8, resolved.recipe.data.seq_len}, kernels::kernels_for(device::Kind::cpu),
                     machine_named(machine));
}

const std::vector<std::string> kLlama = {"model.family=llama", "model.preset=1b", "data.seq_len=2048"};

TEST(CheapShare, IsSmallWhereProductsAreLarge) {
  EXPECT_GT(share_of(kLlama, "H200"), 0.004);
  EXPECT_LT(share_of(kLlama, "H200"), kCheapShare);
  // Narrow layers have little to multiply for what they move.
  EXPECT_GT(share_of({"model.family=llama", "data.seq_len=2048"}, "H200"), kCheapShare);
  // As does a machine with slower memory.
  EXPECT_GT(share_of(kLlama, "L4"), share_of(kLlama, "H200"));
}

// In fp8 the maps keep copies of their own.
TEST(CheapShare, IsNothingWithoutValuesToMakeAgain) {
  EXPECT_EQ(share_of({"model.family=llama", "precision.compute=fp8", "model.vocab=256"}, "H200"), 0);
}

}  // namespace
}  // namespace lockstep::plan
