#include "lockstep/training/uploader.h"

#include <gtest/gtest.h>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/step_folders.h"
#include "lockstep/store/testing.h"

namespace lockstep::training {
namespace {

const store::Uri kUri{.scheme = "s3", .account = {}, .path = "b/runs/a", .query = {}};
constexpr double kLong = 60;

class UploaderTest : public testing::Test {
 protected:
  UploadOptions options(int keep = 2) {
    return {.to = kUri.shown(),
            .run_folder = folder_.path(),
            .retention = {.keep = keep},
            .pause = 0.01,
            .open = [this] {
              store::Patience none{.seconds = 0};
              return std::make_unique<checkpoint::RemoteRun>(
                  kUri, store::with_patience(std::make_unique<store::FakeStore>(state_), kUri, none));
            }};
  }
  void save(int64_t step) const {
    const std::string folder = checkpoint::step_folder("x", step).substr(2);
    folder_.write(folder + "/model.safetensors", "weights");
    folder_.write(folder + "/manifest.json", "manifest");
  }
  std::vector<int64_t> there() {
    return checkpoint::RemoteRun(kUri, std::make_unique<store::FakeStore>(state_)).steps();
  }
  base::TemporaryFolder folder_;
  store::FakeState state_;
};

TEST_F(UploaderTest, UploadsAndTells) {
  Uploader uploads(options());
  save(2);
  uploads.saved(2);
  EXPECT_EQ(uploads.finish(kLong), "");
  const auto news = uploads.poll();
  ASSERT_TRUE(news);
  EXPECT_FALSE(news->failed);
  EXPECT_EQ(news->step, 2);
  EXPECT_NE(news->why.find("uploaded to s3://b/runs/a"), std::string::npos) << news->why;
  EXPECT_FALSE(uploads.poll());
  EXPECT_EQ(there(), std::vector<int64_t>{2});
}

TEST_F(UploaderTest, AFailureIsToldAndTriedAgain) {
  for (int i = 0; i < 2; ++i) state_.faults.emplace_back(store::Fault::Kind::passing, "503");
  Uploader uploads(options());
  save(2);
  uploads.saved(2);
  EXPECT_EQ(uploads.finish(kLong), "");
  for (const bool failed : {true, true, false}) {
    const auto news = uploads.poll();
    ASSERT_TRUE(news);
    EXPECT_EQ(news->failed, failed) << news->why;
  }
  EXPECT_EQ(there(), std::vector<int64_t>{2});
}

TEST_F(UploaderTest, WhatIsLeftAtTheEndIsSaid) {
  for (int i = 0; i < 10000; ++i) state_.faults.emplace_back(store::Fault::Kind::denied, "AccessDenied");
  Uploader uploads(options());
  save(2);
  uploads.saved(2);
  const std::string left = uploads.finish(0.2);
  EXPECT_NE(left.find("LS0289"), std::string::npos) << left;
}

// A newer checkpoint takes the place of one that could not be uploaded; one that went meanwhile is no
// failure.
TEST_F(UploaderTest, NewerOnesFollow) {
  Uploader uploads(options());
  uploads.saved(2);  // nothing of it is on the disk any more
  EXPECT_EQ(uploads.finish(kLong), "");
  const auto news = uploads.poll();
  ASSERT_TRUE(news);
  EXPECT_FALSE(news->failed);
  EXPECT_TRUE(news->skipped);
  save(4);
  uploads.saved(4);
  EXPECT_EQ(uploads.finish(kLong), "");
  EXPECT_EQ(there(), std::vector<int64_t>{4});
}

// Two processes, of one run or of two: the later one writes, the other says so and does not try again.
TEST_F(UploaderTest, WhoeverIsOvertakenUploadsNoMore) {
  const auto owned = [&](const char* run, const char* holder) {
    UploadOptions one = options();
    one.owner = {{.run = run, .name = run, .host = "h", .since = "s", .holder = holder}};
    return one;
  };
  Uploader first(owned("a", "1"));
  save(2);
  first.saved(2);
  EXPECT_EQ(first.finish(kLong), "");
  Uploader other(owned("b", "9"));
  other.saved(2);
  EXPECT_NE(other.finish(kLong).find("LS0352"), std::string::npos);
  Uploader second(owned("a", "2"));
  save(4);
  second.saved(4);
  EXPECT_EQ(second.finish(kLong), "");
  save(6);
  first.saved(6);
  EXPECT_NE(first.finish(kLong).find("LS0352"), std::string::npos);
  first.saved(6);
  EXPECT_NE(first.finish(kLong).find("LS0352"), std::string::npos);
  EXPECT_EQ(there(), (std::vector<int64_t>{4, 2}));
}

}  // namespace
}  // namespace lockstep::training
