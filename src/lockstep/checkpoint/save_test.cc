#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> file_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The steps that list() tells of.
std::vector<std::string> listed(const std::string& run) {
  std::vector<std::string> names;
  for (const std::string& path : list(run)) names.push_back(fs::path(path).filename().string());
  return names;
}

using Names = std::vector<std::string>;

TEST(Save, ReadsBackBitForBit) {
  base::TemporaryFolder run;
  Tensors memory;
  const Contents contents = contents_of(memory, 100);
  const std::string folder = save(run.path(), contents, 1);
  EXPECT_EQ(folder, run.path() + "/checkpoints/step-00000100");
  EXPECT_EQ(file_names(folder),
            (Names{"config.json", "manifest.json", "model-00001-of-00001.safetensors",
                   "model.safetensors.index.json", "optimizer-00001-of-00001.safetensors"}));
  EXPECT_EQ(base::read_file(run.path() + "/checkpoints/latest"), "step-00000100\n");
  const Opened opened(folder);
  EXPECT_TRUE(holds(opened, contents));
  EXPECT_TRUE(opened.has("wte.weight"));
  EXPECT_FALSE(opened.has("wte"));
  EXPECT_EQ(opened.names().size(), 6u);
  EXPECT_EQ(opened.manifest()->files.size(), 4u);
}

TEST(Save, WithoutOptimizerAndConfig) {
  base::TemporaryFolder run;
  Tensors memory;
  Contents contents = contents_of(memory, 5);
  contents.optimizer.clear();
  contents.facts.config_json.clear();
  contents.facts.state.clear();
  const std::string folder = save(run.path(), contents, 1);
  EXPECT_EQ(file_names(folder),
            (Names{"manifest.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json"}));
  EXPECT_TRUE(holds(Opened(folder), contents));
}

TEST(Save, KeepsTheNewest) {
  base::TemporaryFolder run;
  Tensors memory;
  EXPECT_TRUE(list(run.path()).empty());
  for (const int64_t step : {2, 9, 10, 123456789}) save(run.path(), contents_of(memory, step), 3);
  EXPECT_EQ(listed(run.path()), (Names{"step-123456789", "step-00000010", "step-00000009"}));
  // A run that went back: what it saves now stays, and what is newer is not its to remove.
  save(run.path(), contents_of(memory, 11), 2);
  EXPECT_EQ(listed(run.path()), (Names{"step-123456789", "step-00000011", "step-00000010"}));
  save(run.path(), contents_of(memory, 200'000'000), 0);  // keeps at least the one just saved
  EXPECT_EQ(listed(run.path()), (Names{"step-200000000"}));
}

TEST(Save, ListsOnlyWholeOnes) {
  base::TemporaryFolder run;
  Tensors memory;
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) save(run.path(), contents_of(memory, step), 99);
  const std::string folder = run.path() + "/checkpoints/step-0000000";
  fs::remove(folder + "6/manifest.json");
  fs::resize_file(folder + "5/manifest.json", 40);
  fs::remove(folder + "4/optimizer-00001-of-00001.safetensors");
  fs::resize_file(folder + "3/model-00001-of-00001.safetensors", 100);
  fs::copy(folder + "2", run.path() + "/checkpoints/step-00000007");  // tells another step
  fs::copy(folder + "2", run.path() + "/checkpoints/step-2");
  run.write("checkpoints/step-00000008", "a file");
  run.write("checkpoints/step-99999999999999999999/manifest.json", "{}");
  EXPECT_EQ(listed(run.path()), (Names{"step-00000002", "step-00000001"}));

  // Those that were finished once are named with what is wrong.
  const std::vector<Damaged> found = damaged(run.path());
  const char* const says[] = {"step-00000008",
                              "is for step 2",
                              "step-00000006 has lost its manifest.json",
                              "step-00000005/manifest.json is not JSON",
                              "optimizer-00001-of-00001.safetensors is missing",
                              "it has 100 bytes"};
  ASSERT_EQ(found.size(), std::size(says));
  for (size_t k = 0; k < found.size(); ++k) {
    EXPECT_NE(found[k].why.find(says[k]), std::string::npos) << found[k].why;
    EXPECT_EQ(found[k].unfinished, k == 3) << found[k].why;
  }
}

TEST(Save, ClearsWhatABrokenSaveLeft) {
  base::TemporaryFolder run;
  Tensors memory;
  run.write("checkpoints/step-00000003/model-00001-of-00002.safetensors", "half");
  run.write("checkpoints/step-00000004/manifest.json", "");
  run.write("checkpoints/step-00000005/model-00009-of-00009.safetensors", "of another width");
  run.write("checkpoints/step-00000006/manifest.json", "{damaged, for its owner to look at");
  run.write("checkpoints/notes/mine", "stays");
  const Contents contents = contents_of(memory, 5);
  save(run.path(), contents, 1);
  EXPECT_EQ(file_names(run.path() + "/checkpoints"),
            (Names{"latest", "notes", "step-00000005", "step-00000006"}));
  EXPECT_TRUE(holds(Opened(run.path() + "/checkpoints/step-00000005"), contents));
  EXPECT_FALSE(fs::exists(run.path() + "/checkpoints/step-00000005/model-00009-of-00009.safetensors"));
}

TEST(Save, SameStepAgainReplacesOnlyWhatDiffers) {
  base::TemporaryFolder run;
  Tensors memory;
  const Contents contents = contents_of(memory, 5);
  const std::string manifest = save(run.path(), contents, 1) + "/manifest.json";
  const auto written = fs::last_write_time(manifest);
  save(run.path(), contents, 1);
  EXPECT_EQ(fs::last_write_time(manifest), written);  // the same: stands

  Contents other = contents_of(memory, 5);
  other.facts.state.push_back(1);
  const std::string folder = save(run.path(), other, 1);
  EXPECT_TRUE(holds(Opened(folder), other));

  const std::string model =
      folder + "/model-00001-of-00001.safetensors";  // the same, but damaged: written again
  std::string bytes = base::read_file(model);
  bytes.back() ^= 1;
  run.write("checkpoints/step-00000005/model-00001-of-00001.safetensors", bytes);
  save(run.path(), other, 1);
  EXPECT_TRUE(holds(Opened(folder), other));
}

TEST(Save, OfALinkOnlyTheLinkIsRemoved) {
  base::TemporaryFolder run, elsewhere;
  Tensors memory;
  const std::string moved = elsewhere.path() + "/moved";
  fs::copy(save(run.path(), contents_of(memory, 1), 1), moved);
  fs::remove_all(run.path() + "/checkpoints/step-00000001");
  fs::create_directory_symlink(moved, run.path() + "/checkpoints/step-00000001");
  EXPECT_EQ(listed(run.path()), Names{"step-00000001"});
  save(run.path(), contents_of(memory, 2), 1);
  EXPECT_EQ(listed(run.path()), Names{"step-00000002"});
  EXPECT_TRUE(holds(Opened(moved), contents_of(memory, 1)));
}

TEST(Save, ARunThatCannotSeeItsCheckpointsIsToldSo) {
  base::TemporaryFolder run;
  run.write("checkpoints", "a file where the folder should be");
  EXPECT_NE(refusal(809, [&] { list(run.path()); }).find("/checkpoints cannot be read"), std::string::npos);
}

TEST(Save, ANameTwiceIsABug) {
  base::TemporaryFolder run;
  Tensors memory;
  Contents contents = contents_of(memory, 1);
  contents.optimizer.push_back(contents.model[0]);
  EXPECT_THROW(save(run.path(), contents, 1), base::Bug);
}

}  // namespace
}  // namespace lockstep::checkpoint
