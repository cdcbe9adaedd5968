// What is said of checkpoints that cannot be used, to whoever names their run.
#include "lockstep/checkpoint/older.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

// A run with checkpoints of steps 1, 2 and 3.
class Older : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int64_t step : {1, 2, 3}) save(run_.path(), contents_of(memory_, step), 99);
  }
  std::string at(int step) const { return run_.path() + "/checkpoints/step-0000000" + std::to_string(step); }
  std::string manifest(int step) const { return at(step) + "/manifest.json"; }
  int named() { return name_damaged(run_.path(), list(run_.path()), say_); }

  base::TemporaryFolder run_;
  Tensors memory_;
  std::vector<std::string> said_;
  Say say_ = [this](const std::string& line) { said_.push_back(line); };
};

TEST_F(Older, OfAWholeRunNothingIsSaid) {
  EXPECT_EQ(named(), 0);
  EXPECT_TRUE(said_.empty());
}

TEST_F(Older, ALostManifestIsNamedWithWhatIsUsedInstead) {
  for (const bool emptied : {false, true}) {  // a power cut can leave the name alone
    said_.clear();
    fs::remove(manifest(3));
    if (emptied) run_.write("checkpoints/step-00000003/manifest.json", "");
    EXPECT_EQ(named(), 1);
    ASSERT_EQ(said_.size(), 2u);
    EXPECT_NE(said_[0].find(at(3) + " has lost its manifest.json"), std::string::npos) << said_[0];
    EXPECT_EQ(said_[1], "using the previous one: " + at(2));
    said_.clear();
    EXPECT_EQ(folders_to_read(run_.path(), say_), (std::vector<std::string>{at(2), at(1)}));
    EXPECT_EQ(said_.size(), 2u);
  }
}

// A folder without a manifest that `latest` does not name is a save that was never finished.
TEST_F(Older, AnUnfinishedSaveIsNotDamage) {
  fs::create_directory(at(4));
  EXPECT_EQ(named(), 0);
  EXPECT_TRUE(said_.empty());
}

TEST_F(Older, AManifestThatWasBeingWrittenIsNamedAndNotCounted) {
  fs::resize_file(manifest(3), 40);
  EXPECT_EQ(named(), 0);
  EXPECT_EQ(said_.size(), 2u);
}

TEST_F(Older, AllThatAreNewerThanTheUsableOneAreNamed) {
  fs::remove(manifest(3));
  fs::resize_file(at(2) + "/model-00001-of-00001.safetensors", 100);
  EXPECT_EQ(named(), 2);
  ASSERT_EQ(said_.size(), 3u);
  EXPECT_NE(said_[1].find(at(2)), std::string::npos);
  EXPECT_EQ(said_[2], "using the previous one: " + at(1));
}

// What lies behind a whole one is not read, and not spoken of.
TEST_F(Older, OlderDamageDoesNotMatter) {
  fs::remove(manifest(1));
  EXPECT_EQ(named(), 0);
  EXPECT_TRUE(said_.empty());
}

TEST_F(Older, WithNothingUsableNothingIsOffered) {
  for (const int step : {1, 2, 3}) fs::resize_file(at(step) + "/model-00001-of-00001.safetensors", 100);
  EXPECT_EQ(named(), 3);
  EXPECT_EQ(said_.size(), 3u);
  EXPECT_NE(refusal(324, [&] { model_folders(run_.path()); }).find("no complete checkpoint"),
            std::string::npos);
}

TEST_F(Older, TheOneBeforeIsOffered) {
  offer_older(at(3), say_);
  offer_older(at(2) + "/", say_);
  EXPECT_EQ(said_, (std::vector<std::string>{"the previous one is complete: " + at(2),
                                             "the previous one is complete: " + at(1)}));
  said_.clear();
  offer_older(at(1), say_);
  offer_older(run_.path(), say_);
  EXPECT_TRUE(said_.empty());
}

// Damage that only reading shows.
TEST_F(Older, TheNewestThatCanBeReadIsRead) {
  std::vector<std::string> tried;
  const auto read = [&](const std::string& folder) {
    tried.push_back(folder);
    if (folder != at(1)) throw CheckpointError(306, folder + " is damaged");
  };
  EXPECT_EQ(read_newest(run_.path(), read, say_), at(1));
  EXPECT_EQ(tried, (std::vector<std::string>{at(3), at(2), at(1)}));
  ASSERT_EQ(said_.size(), 4u);
  EXPECT_EQ(said_[1], "using the previous one: " + at(2));
  EXPECT_EQ(said_[3], "using the previous one: " + at(1));

  // What is not the checkpoint's fault does not become better with another one.
  const auto full = [](const std::string&) { throw base::IoError(801, "the disk is full"); };
  EXPECT_THROW(read_newest(run_.path(), full, say_), base::IoError);

  // Named itself, it is not replaced by another; the one before it is offered.
  said_.clear();
  EXPECT_THROW(read_newest(at(3), read, say_), CheckpointError);
  EXPECT_EQ(said_, std::vector<std::string>{"the previous one is complete: " + at(2)});
}

}  // namespace
}  // namespace lockstep::checkpoint
