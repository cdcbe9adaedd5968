// Checkpoints of a model that a program has brought: nothing in them claims to be another model.
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/export.h"
#include "lockstep/model/families/family.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

std::string saved_by(const std::string& folder, Own own) {
  Session session(make_plan(tiny_recipe({"memory.logits_chunk=64"}), std::move(own)));
  return save_checkpoint(session, folder, 1);
}

TEST(OwnModel, ItsCheckpointHasNoHuggingFaceFiles) {
  const base::TemporaryFolder folder;
  Own own;
  own.dataset = data::open_dataset(tiny_recipe().recipe);
  own.build_model = [vocab = own.dataset->vocab()](const recipe::Recipe&, device::DType type) {
    recipe::Resolved another = tiny_recipe({"model.family=llama", "memory.logits_chunk=64"});
    model::resolve_model(another, vocab);
    model::Model model = model::build_model(another.recipe, type);
    model.family = "gru";
    return model;
  };
  const std::string saved = saved_by(folder.path(), std::move(own));
  EXPECT_FALSE(std::filesystem::exists(saved + "/config.json"));
  const checkpoint::Exported exported =
      checkpoint::export_model(checkpoint::Opened(saved), folder.path() + "/plain", std::nullopt);
  EXPECT_FALSE(exported.has_config);
  EXPECT_GT(exported.tensors, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/plain/config.json"));
  // And the recipe's gpt2 is not looked for in it.
  recipe::Resolved from = tiny_recipe({"model.from=" + saved});
  EXPECT_NE(base::refusal(336, [&] { adopt_model(from); }).find("C++ program"), std::string::npos);
}

TEST(OwnModel, TheFamiliesKeepTheirs) {
  const base::TemporaryFolder folder;
  const std::string saved = saved_by(folder.path(), {});
  EXPECT_TRUE(std::filesystem::exists(saved + "/config.json"));
  EXPECT_TRUE(
      checkpoint::export_model(checkpoint::Opened(saved), folder.path() + "/plain", std::nullopt).has_config);
}

}  // namespace
}  // namespace lockstep::run
