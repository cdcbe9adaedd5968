#include "lockstep/launch/rendezvous/replicas.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <numeric>
#include <thread>

namespace {

// The next so many requests for exactly this many bytes find no memory.
constexpr size_t kRefusedBytes = 1234567;
std::atomic<int> refusals{0};

}  // namespace

void* operator new(size_t bytes) {
  if (bytes == kRefusedBytes && refusals.load() > 0) {
    --refusals;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace lockstep::launch {
namespace {

run::SnapshotCopy copy_of(size_t bytes, int64_t commit, uint64_t shape = 7) {
  run::SnapshotCopy copy{shape, 0, commit, std::vector<char>(bytes)};
  std::iota(copy.bytes.begin(), copy.bytes.end(), static_cast<char>(commit));
  copy.checksum = run::snapshot_checksum(copy.bytes.data(), static_cast<int64_t>(bytes));
  return copy;
}

TEST(Copies, GoThroughAStoreInPieces) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{9} << 20}) {
    const auto store = comm::make_local_store();
    const run::SnapshotCopy copy = copy_of(bytes, 12);
    put_copy(*store, "rank-3/0", copy);
    const run::SnapshotCopy back = get_copy(*store, "rank-3/0");
    EXPECT_EQ(back.commit, 12);
    EXPECT_EQ(back.shape, copy.shape);
    EXPECT_EQ(back.bytes, copy.bytes);
    EXPECT_EQ(get_copy(*store, "rank-3/1").commit, 0) << "there is none";
  }
}

TEST(Copies, WhatIsNotWholeDoesNotCount) {
  const auto damaged = [](const std::function<void(comm::Store&)>& how) {
    const auto store = comm::make_local_store();
    put_copy(*store, "x", copy_of(5 << 20, 3));
    how(*store);
    return get_copy(*store, "x").commit;
  };
  EXPECT_EQ(damaged([](comm::Store&) {}), 3);
  EXPECT_EQ(damaged([](comm::Store& s) { s.remove("x/about"); }), 0) << "its sender died in the middle";
  EXPECT_EQ(damaged([](comm::Store& s) { s.remove("x/1"); }), 0);
  EXPECT_EQ(damaged([](comm::Store& s) { s.set("x/1", ""); }), 0);
  EXPECT_EQ(damaged([](comm::Store& s) { s.set("x/1", std::string(2 << 20, 'x')); }), 0) << "too long";
  EXPECT_EQ(damaged([](comm::Store& s) { s.set("x/1", std::string(1 << 20, 'x')); }), 0) << "other bytes";
  EXPECT_EQ(damaged([](comm::Store& s) { s.set("x/about", "{"); }), 0);
  EXPECT_EQ(damaged([](comm::Store& s) {
              s.set("x/about", R"({"shape": 1, "checksum": 2, "commit": 3, "bytes": 1e30})");
            }),
            0);
  EXPECT_EQ(damaged([](comm::Store& s) {
              s.set("x/about", R"({"shape": 1, "checksum": 2, "commit": 3, "bytes": 999999999999999})");
            }),
            0);
}

TEST(Copies, ComeBackIntoAFreshMemory) {
  const int memory = ::memfd_create("test", MFD_CLOEXEC);
  int which = -1;
  EXPECT_EQ(run::read_newest(memory, 0, which).commit, 0) << "nothing is in it";
  EXPECT_FALSE(run::write_copies(memory, {}));
  EXPECT_FALSE(run::write_copies(memory, {copy_of(8192, 3), copy_of(4096, 4)})) << "of two sizes";
  EXPECT_FALSE(run::write_copies(memory, {copy_of(8192, 3), copy_of(8192, 4, 8)})) << "of two layouts";
  run::SnapshotCopy wrong = copy_of(8192, 3);
  wrong.bytes[100] ^= 1;
  EXPECT_FALSE(run::write_copies(memory, {wrong}));
  ASSERT_TRUE(run::write_copies(memory, {copy_of(8192, 3), copy_of(8192, 5)}));
  EXPECT_EQ(run::read_newest(memory, 0, which).bytes, copy_of(8192, 5).bytes);
  EXPECT_EQ(which, 1);
  EXPECT_EQ(run::read_newest(memory, 5, which).commit, 0) << "nothing newer";
  ASSERT_EQ(::ftruncate(memory, 5000), 0);
  EXPECT_EQ(run::read_newest(memory, 0, which).commit, 0) << "cut short";
  ::close(memory);
}

// Two launchers on one store; the first one's rank has a snapshot, and there is no memory for a copy of it
// yet. It stays with its launcher, which goes on, and arrives when there is.
TEST(Replicas, ALauncherWithoutMemoryForACopyGoesOn) {
  const auto store = comm::make_local_store();
  const comm::Secret secret = comm::Secret::random();
  const RankMemories here(1), there(1);
  ASSERT_TRUE(run::write_copies(here.descriptor(0), {copy_of(kRefusedBytes, 3)}));
  const auto options = [&](const std::string& token) {
    return Replicas::Options{"127.0.0.1", token, secret, false, [](const std::string&) {}};
  };
  State state;
  for (const char* token : {"a", "b"}) {
    NodePlace place;
    place.card.token = token, place.node = place.first_rank = static_cast<int>(state.nodes.size());
    state.nodes.push_back(place);
  }
  Replicas first(options("a"), store->clone(), here), second(options("b"), store->clone(), there);
  refusals = 3;
  first.begin_round(state, state.nodes[0]);
  const auto begin = std::chrono::steady_clock::now();
  while (!store->try_get("replica/holder/0") &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(60))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(refusals, 0) << "no copy of this size is made by now";
  EXPECT_TRUE(store->try_get("replica/holder/0").has_value());
}

}  // namespace
}  // namespace lockstep::launch
