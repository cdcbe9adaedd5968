#include "lockstep/store/object_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/store/local.h"
#include "lockstep/store/record.h"
#include "lockstep/store/testing.h"

namespace lockstep::store {
namespace {

const Uri kUri{.scheme = "s3", .account = {}, .path = "b", .query = {}};

class ObjectCacheTest : public testing::Test {
 protected:
  CacheOptions options(int64_t most = 1000) const {
    return {.folder = folder_.path() + "/cache", .most_bytes = most, .threads = 4, .range = 7};
  }
  std::string copy(const ObjectCache& cache, const std::string& key) const {
    return base::read_file(cache.path_of(kUri, key));
  }
  size_t reads() const {
    return static_cast<size_t>(std::count_if(state_.asked.begin(), state_.asked.end(),
                                             [](const std::string& one) { return one.starts_with("read"); }));
  }
  base::TemporaryFolder folder_;
  FakeState state_;
  FakeStore store_{state_};
};

TEST_F(ObjectCacheTest, FetchesInRangesAndOnce) {
  state_.put("b/large", "0123456789012345678901234567890");
  state_.put("b/small", "abc");
  state_.put("b/empty", "");
  ObjectCache cache(options());
  cache.fetch(store_, kUri, store_.list("b"));
  EXPECT_EQ(copy(cache, "b/large"), state_.objects["b/large"]);
  EXPECT_EQ(copy(cache, "b/small"), "abc");
  EXPECT_EQ(copy(cache, "b/empty"), "");
  EXPECT_EQ(reads(), 6U);  // 5 ranges of 7 bytes, and one
  cache.fetch(store_, kUri, store_.list("b"));
  ObjectCache(options()).fetch(store_, kUri, store_.list("b"));
  EXPECT_EQ(reads(), 6U);
}

TEST_F(ObjectCacheTest, FetchesAgainWhatHasChanged) {
  state_.put("b/a", "old");
  ObjectCache cache(options());
  cache.fetch(store_, kUri, store_.list("b"));
  state_.now += 10;
  state_.put("b/a", "new");
  cache.fetch(store_, kUri, store_.list("b"));
  EXPECT_EQ(copy(cache, "b/a"), "new");
}

// The same second and size: only the version tells, and whoever lists does not see it.
TEST_F(ObjectCacheTest, BelievesNoCopyOfWhatWasWrittenJustNow) {
  state_.now = std::time(nullptr);
  state_.put("b/a", "old");
  ObjectCache cache(options());
  cache.fetch(store_, kUri, store_.list("b"));
  state_.put("b/a", "new");
  cache.fetch(store_, kUri, store_.list("b"));
  EXPECT_EQ(copy(cache, "b/a"), "new");
}

TEST_F(ObjectCacheTest, AFetchThatFailsLeavesNothingThatLooksWhole) {
  state_.put("b/a", "0123456789");
  ObjectCache cache(options());
  state_.faults.assign(1, Fault(Fault::Kind::passing, "no"));
  const std::vector<Object> objects = [&] {
    FakeState other;
    other.put("b/a", "0123456789");
    return FakeStore(other).list("b");
  }();
  EXPECT_THROW(cache.fetch(store_, kUri, objects), Fault);
  EXPECT_FALSE(std::filesystem::exists(cache.path_of(kUri, "b/a")));
  EXPECT_FALSE(cache.has(kUri, objects.front()));
  cache.fetch(store_, kUri, objects);
  EXPECT_EQ(copy(cache, "b/a"), "0123456789");
}

// Killed between the copy and its record, or while the record was written.
TEST_F(ObjectCacheTest, ACopyWithoutAWholeRecordIsFetchedAgain) {
  state_.put("b/a", "right");
  ObjectCache cache(options());
  cache.fetch(store_, kUri, store_.list("b"));
  const std::string path = cache.path_of(kUri, "b/a"), record = Record::path_for(path);
  for (const std::string& left : {std::string(), std::string("5 10"), std::string("5 1000 ")}) {
    base::write_file_durable(path, "wrong");
    base::write_file_durable(record, left);
    cache.fetch(store_, kUri, store_.list("b"));
    EXPECT_EQ(copy(cache, "b/a"), "right") << left;
  }
}

TEST_F(ObjectCacheTest, MakesRoomFromWhatWasNotUsedForLongest) {
  for (const char* key : {"b/1", "b/2", "b/3"}) state_.put(key, std::string(10, 'x'));
  {
    ObjectCache cache(options(30));
    for (const Object& one : store_.list("b")) {
      cache.fetch(store_, kUri, {one});
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    cache.fetch(store_, kUri, {store_.list("b").front()});  // 1 is used again
  }
  state_.put("b/4", std::string(10, 'y'));
  ObjectCache cache(options(30));
  cache.fetch(store_, kUri, {store_.list("b").back()});
  EXPECT_TRUE(std::filesystem::exists(cache.path_of(kUri, "b/1")));
  EXPECT_FALSE(std::filesystem::exists(cache.path_of(kUri, "b/2")));
  EXPECT_TRUE(std::filesystem::exists(cache.path_of(kUri, "b/3")));
  EXPECT_TRUE(std::filesystem::exists(cache.path_of(kUri, "b/4")));
}

TEST_F(ObjectCacheTest, WhatALivingProcessUsesStays) {
  for (const char* key : {"b/1", "b/2", "b/3"}) state_.put(key, std::string(10, 'x'));
  const std::vector<Object> objects = store_.list("b");
  const ObjectCache other(options(30));
  ObjectCache user(options(30)), cache(options(20));
  user.fetch(store_, kUri, {objects[0], objects[1]});
  try {
    cache.fetch(store_, kUri, {objects[2]});
    FAIL();
  } catch (const base::ConfigError& error) {
    EXPECT_EQ(error.number(), 291);
  }
  EXPECT_TRUE(std::filesystem::exists(user.path_of(kUri, "b/1")));
}

TEST_F(ObjectCacheTest, TwoAtOnceFetchOnce) {
  state_.put("b/a", std::string(100, 'z'));
  const std::vector<Object> objects = store_.list("b");
  ObjectCache one(options()), two(options());
  std::thread other([&] { two.fetch(store_, kUri, objects); });
  one.fetch(store_, kUri, objects);
  other.join();
  EXPECT_EQ(reads(), 15U);
  EXPECT_EQ(copy(one, "b/a"), std::string(100, 'z'));
}

// Replaced while it is read: between the two questions for its version.
class Restless final : public Store {
 public:
  Restless(FakeState& state, int changes) : state_(state), store_(state), changes_(changes) {}
  std::vector<Object> list(const std::string& folder) override { return store_.list(folder); }
  std::optional<Object> find(const std::string& key) override { return store_.find(key); }
  void read(const Object& object, int64_t offset, std::span<std::byte> out) override {
    store_.read(object, offset, out);
    if (changes_-- > 0) state_.put(object.key, std::string(5, static_cast<char>('a' + changes_)));
  }
  void write(const std::string&, const std::string&) override {}
  void remove(const std::string&) override {}

 private:
  FakeState& state_;
  FakeStore store_;
  int changes_;
};

TEST_F(ObjectCacheTest, AnObjectThatChangesWhileItIsRead) {
  state_.put("b/a", "first");
  Restless twice(state_, 2);
  ObjectCache cache(options());
  cache.fetch(twice, kUri, twice.list("b"));
  EXPECT_EQ(copy(cache, "b/a"), state_.objects["b/a"]);
  state_.now += 10;
  state_.put("b/a", "later");
  Restless forever(state_, 99);
  EXPECT_THROW(cache.fetch(forever, kUri, forever.list("b")), base::DataError);
}

TEST_F(ObjectCacheTest, FoldersPatternsAndObjects) {
  for (const char* key : {"b/c/1.txt", "b/c/2.txt", "b/c/d/3.bin", "b/c/.hidden", "b/other"})
    state_.put(key, key);
  ObjectCache cache(options());
  const auto fetched = [&](const std::string& path) {
    return fetch(store_, {.scheme = "s3", .account = {}, .path = path, .query = {}}, cache);
  };
  EXPECT_EQ(fetched("b/c").files.size(), 3U);
  EXPECT_TRUE(fetched("b/c").is_folder);
  EXPECT_EQ(fetched("b/c/*.txt").files.size(), 2U);
  EXPECT_EQ(base::read_file(fetched("b/c/1.txt").path), "b/c/1.txt");
  EXPECT_THROW(fetched("b/nothing"), base::DataError);
  EXPECT_THROW(fetched("b/c/*.csv"), base::DataError);
  state_.objects.erase("b/c/2.txt");  // a folder shows what the store has now
  EXPECT_EQ(fetched("b/c").files.size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(cache.path_of(kUri, "b/c/2.txt")));
}

// Megatron's .idx says what its .bin holds: who names the .bin, or what both names share, gets both.
TEST_F(ObjectCacheTest, AnIndexComesWithItsTokens) {
  for (const char* key : {"b/text.bin", "b/text.idx", "b/alone.bin", "b/index.idx"}) state_.put(key, key);
  ObjectCache cache(options());
  const auto fetched = [&](const std::string& path) {
    return fetch(store_, {.scheme = "s3", .account = {}, .path = path, .query = {}}, cache).files;
  };
  const std::vector<std::string> pair = {cache.path_of(kUri, "b/text.bin"),
                                         cache.path_of(kUri, "b/text.idx")};
  EXPECT_EQ(fetched("b/text.bin"), pair);
  EXPECT_EQ(fetched("b/text"), pair);
  EXPECT_EQ(fetched("b/alone.bin").size(), 1U);
  EXPECT_THROW(fetched("b/index"), base::DataError);
}

}  // namespace
}  // namespace lockstep::store
