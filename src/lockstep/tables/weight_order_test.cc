#include "lockstep/recipe/weight_order.h"

#include <gtest/gtest.h>

#include "lockstep/model/families/family.h"

namespace lockstep::recipe {
namespace {

TEST(WeightOrder, IsWhatTheFamilySays) {
  for (const model::Family& family : model::families()) {
    if (!family.huggingface) continue;
    for (const std::string& type : family.huggingface->model_types)
      EXPECT_EQ(weights_by_input(type), family.huggingface->weights_by_input) << type;
  }
  EXPECT_TRUE(weights_by_input("gpt2"));  // transformers' Conv1D
  EXPECT_FALSE(weights_by_input("llama"));
  EXPECT_FALSE(weights_by_input("a model that nobody reads"));
}

}  // namespace
}  // namespace lockstep::recipe
