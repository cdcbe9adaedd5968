#include "lockstep/checkpoint/remote.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/step_folders.h"
#include "lockstep/store/testing.h"

namespace lockstep::checkpoint {
namespace {

const store::Uri kUri{.scheme = "s3", .account = {}, .path = "b/runs/a", .query = {}};

class RemoteRunTest : public testing::Test {
 protected:
  RemoteRunTest() { setenv("LOCKSTEP_OBJECT_CACHE", (own_cache_folder().path() + "/cache").c_str(), 1); }
  // The process has one cache, whichever test asks first.
  static const base::TemporaryFolder& own_cache_folder() {
    static const base::TemporaryFolder folder;
    return folder;
  }
  RemoteRun remote() { return RemoteRun(kUri, std::make_unique<store::FakeStore>(state_)); }
  void save(int64_t step) const {
    const std::string folder = step_folder("run", step).substr(4);
    folder_.write("run/" + folder + "/model.safetensors", "weights " + std::to_string(step));
    folder_.write("run/" + folder + "/manifest.json", "manifest " + std::to_string(step));
  }
  std::string run() const { return folder_.path() + "/run"; }
  base::TemporaryFolder folder_;
  store::FakeState state_;
};

TEST_F(RemoteRunTest, TheManifestIsWrittenLast) {
  save(2);
  remote().upload(run(), 2);
  const std::string key = "b/runs/a/checkpoints/step-00000002/";
  EXPECT_EQ(state_.objects.at(key + "model.safetensors"), "weights 2");
  EXPECT_EQ(state_.asked.front(), "remove " + key + "manifest.json");
  EXPECT_EQ(state_.asked.back(), "write " + key + "manifest.json");
  EXPECT_EQ(remote().steps(), std::vector<int64_t>{2});
}

// Whenever it breaks, what the store has is a whole checkpoint or none.
TEST_F(RemoteRunTest, AnUploadThatFailsLeavesNoCheckpoint) {
  save(2);
  remote().upload(run(), 2);
  save(4);
  for (const size_t good : {0, 1, 2}) {  // removing an old manifest, the weights, the manifest
    state_.good = good;
    state_.faults.assign(1, store::Fault(store::Fault::Kind::passing, "no"));
    EXPECT_THROW(remote().upload(run(), 4), store::Fault) << good;
    EXPECT_EQ(remote().steps(), std::vector<int64_t>{2}) << good;
  }
}

TEST_F(RemoteRunTest, WhatStays) {
  struct Row {
    std::vector<int64_t> there;
    int64_t step;
    Retention retention;
    std::vector<int64_t> stays;
  };
  const Row rows[] = {{{2, 4, 6}, 6, {.keep = 2}, {6, 4}},
                      {{2, 4, 6}, 6, {.keep = 1}, {6}},
                      {{2, 4, 6, 8}, 8, {.keep = 1, .every = 4}, {8, 4}},
                      {{2, 4, 90}, 4, {.keep = 2}, {4, 2}},  // 90 is of a past that this run has left
                      {{2}, 2, {.keep = 5}, {2}}};
  for (const Row& row : rows) {
    state_.objects.clear();
    for (const int64_t step : row.there) save(step), remote().upload(run(), step);
    state_.put("b/runs/a/checkpoints/step-00000001/model.safetensors", "an upload that was killed");
    remote().remove_others(row.step, row.retention);
    EXPECT_EQ(remote().steps(), row.stays) << row.step;
    EXPECT_FALSE(state_.objects.contains("b/runs/a/checkpoints/step-00000001/model.safetensors"));
  }
}

TEST_F(RemoteRunTest, AnEmptyDiskGetsTheNewestCompleteOne) {
  save(2), save(4);
  folder_.write("run/config.toml", "config");
  remote().upload(run(), 2);
  remote().upload(run(), 4);
  remote().upload_run_files(run());
  state_.put("b/runs/a/checkpoints/step-00000006/model.safetensors", "no manifest");
  state_.put("b/runs/a/checkpoints/step-00000008/manifest.json", "");
  const std::string other = folder_.path() + "/other";
  base::make_folders(other);
  EXPECT_EQ(remote().restore(other), 4);
  EXPECT_EQ(base::read_file(step_folder(other, 4) + "/model.safetensors"), "weights 4");
  EXPECT_EQ(base::read_file(step_folder(other, 4) + "/manifest.json"), "manifest 4");
  EXPECT_EQ(base::read_file(other + "/config.toml"), "config");
  EXPECT_FALSE(std::filesystem::exists(step_folder(other, 6)));
  EXPECT_EQ(remote().restore(other, {.newer_than = 4}), std::nullopt);
  state_.objects.clear();
  EXPECT_EQ(remote().restore(other), std::nullopt);
}

// The newest is damaged: the one before, as on a disk. None can be used: what was wrong with the newest.
TEST_F(RemoteRunTest, ADamagedOneGivesWayToTheOneBefore) {
  for (const int64_t step : {2, 4, 6}) save(step), remote().upload(run(), step);
  struct Row {
    std::vector<int64_t> damaged;
    std::optional<int64_t> taken;
  };
  for (const Row& row : {Row{{6}, 4}, Row{{6, 4}, 2}, Row{{}, 6}, Row{{2, 4, 6}, std::nullopt}}) {
    const std::string other = folder_.path() + "/other" + std::to_string(row.damaged.size());
    base::make_folders(other);
    std::vector<std::string> passed;
    const RemoteRun::Restoring how{.check =
                                       [&](const std::string& folder) {
                                         for (const int64_t step : row.damaged) {
                                           if (folder == step_folder(other, step))
                                             throw CheckpointError(305, std::to_string(step));
                                         }
                                       },
                                   .passing = [&](const std::string& why) { passed.push_back(why); }};
    if (row.taken) {
      EXPECT_EQ(remote().restore(other, how), row.taken);
      EXPECT_TRUE(std::filesystem::exists(step_folder(other, *row.taken) + "/manifest.json"));
    } else {
      EXPECT_THROW(remote().restore(other, how), CheckpointError);
    }
    EXPECT_EQ(passed.size(), row.damaged.size());
    for (const int64_t step : row.damaged) EXPECT_FALSE(std::filesystem::exists(step_folder(other, step)));
  }
}

TEST_F(RemoteRunTest, ItsOwnerIsWrittenBesideItsCheckpoints) {
  EXPECT_FALSE(remote().owner());
  remote().set_owner({.run = "1", .name = "a \"b\"", .host = "h", .since = "now", .holder = "2"});
  const auto owner = remote().owner();
  ASSERT_TRUE(owner);
  EXPECT_EQ(owner->name, "a \"b\"");
  EXPECT_EQ(owner->holder, "2");
  state_.put("b/runs/a/owner.json", "half of i");
  EXPECT_FALSE(remote().owner());
}

TEST_F(RemoteRunTest, WhoMayWriteThere) {
  const std::string to = kUri.shown();
  const auto folder = [&](const std::string& name) {
    base::make_folders(folder_.path() + "/" + name);
    return folder_.path() + "/" + name;
  };
  const RemoteOwner first = claim(std::nullopt, folder("first"), "a", to);
  EXPECT_EQ(claim(first, folder("first"), "a", to).run, first.run);
  EXPECT_EQ(claim(first, folder("first"), "renamed", to).run, first.run);  // its own number says enough
  EXPECT_NE(claim(first, folder("first"), "a", to).holder, first.holder);
  EXPECT_EQ(claim(first, folder("new machine"), "a", to).run, first.run);
  EXPECT_NE(claim(std::nullopt, folder("first"), "a", to + "2").run, first.run);
  EXPECT_THROW(claim(first, folder("other"), "b", to), base::ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder("other") + "/store.json"));
  const RemoteOwner other = claim(std::nullopt, folder("own"), "a", to);  // the same name, another run
  EXPECT_THROW(claim(first, folder("own"), "a", to), base::ConfigError);
  EXPECT_NE(other.run, first.run);
  folder_.write("run/checkpoints/latest", "step-00000002");  // a run that has never met this store
  EXPECT_THROW(claim(first, run(), "a", to), base::ConfigError);
}

TEST_F(RemoteRunTest, ACheckpointThatWasRemovedMeanwhile) {
  try {
    remote().upload(run(), 2);
    FAIL();
  } catch (const base::IoError& error) {
    EXPECT_EQ(error.number(), 345);
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
