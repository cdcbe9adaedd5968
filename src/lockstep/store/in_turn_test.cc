#include "lockstep/store/in_turn.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSize = 4000;

// Objects of a store that is a folder, and a cache for some of them.
class InTurnTest : public testing::Test {
 protected:
  InTurnTest() {
    for (int i = 0; i < 6; ++i) {
      const std::string name = std::to_string(i);
      base::make_folders(folder_.path() + "/bucket");
      base::write_file_durable(folder_.path() + "/bucket/" + name, std::string(kSize, name[0]));
    }
    for (const Object& object : list_of("file://" + folder_.path() + "/bucket").objects) {
      files_.push_back("file:///" + object.key);
      objects_.emplace(files_.back(), object);
    }
  }
  CacheOptions cache_of(int64_t copies) const {
    return {.folder = folder_.path() + "/cache", .most_bytes = copies * kSize, .threads = 2, .range = 1000};
  }
  int64_t bytes_in_cache() const {
    int64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path() + "/cache")) {
      if (entry.is_regular_file() && entry.file_size() == kSize) bytes += kSize;
    }
    return bytes;
  }

  base::TemporaryFolder folder_;
  std::vector<std::string> files_;
  std::map<std::string, Object> objects_;
};

TEST_F(InTurnTest, NeedsNoMoreThanTheCacheHolds) {
  for (const int64_t copies : {1, 2, 3, 10}) {
    ObjectCache cache(cache_of(copies));
    InTurn in_turn(files_, objects_, &cache);
    for (size_t i = 0; i < files_.size(); ++i) {
      EXPECT_EQ(base::read_file(in_turn.local(i)), std::string(kSize, static_cast<char>('0' + i)));
      EXPECT_LE(bytes_in_cache(), copies * kSize);
    }
  }
}

TEST_F(InTurnTest, WhatIsReadStays) {
  ObjectCache cache(cache_of(3)), another(cache_of(3));
  InTurn in_turn(files_, objects_, &cache), others(files_, objects_, &another);
  const std::string copy = in_turn.local(0);
  others.local(3);  // of somebody who needs space too
  EXPECT_TRUE(fs::exists(copy));
  in_turn.local(1);
  in_turn.local(2);
  EXPECT_FALSE(fs::exists(copy));
}

TEST_F(InTurnTest, FilesStayWhereTheyAre) {
  const std::string own = folder_.path() + "/bucket/2";
  files_.insert(files_.begin() + 1, own);
  ObjectCache cache(cache_of(1));
  InTurn in_turn(files_, objects_, &cache);
  EXPECT_NE(in_turn.local(0), own);
  EXPECT_EQ(in_turn.local(1), own);
  EXPECT_EQ(base::read_file(in_turn.local(2)), std::string(kSize, '1'));
}

TEST_F(InTurnTest, ThatWhichIsGoneIsTold) {
  fs::remove(folder_.path() + "/bucket/1");
  ObjectCache cache(cache_of(3));
  InTurn in_turn(files_, objects_, &cache);
  in_turn.local(0);
  EXPECT_NE(base::refusal(288, [&] { in_turn.local(1); }).find("bucket/1"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::store
