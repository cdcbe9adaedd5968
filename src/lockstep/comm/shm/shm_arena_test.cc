#include "lockstep/comm/shm/shm_arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/device/device.h"

namespace {

std::atomic<int> interruptions{0};  // of the next calls of fallocate

}  // namespace

// Instead of the C library's, in this program: a signal comes when the test wants it to.
extern "C" int fallocate(int file, int mode, off_t offset, off_t bytes) {
  if (interruptions.load() > 0) {
    --interruptions;
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, file, mode, offset, bytes));
}

namespace lockstep::comm {
namespace {

TEST(ShmArena, MemoryIsZeroAgainAndNeverTwiceInUse) {
  const auto arena = make_shared_arena();
  std::vector<std::pair<unsigned char*, int64_t>> blocks;
  for (int round = 0; round < 200; ++round) {
    const int64_t bytes = 1 + round * 977 % 30'000;
    auto* block = static_cast<unsigned char*>(arena->allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 4096, 0u);
    for (int64_t i = 0; i < bytes; i += 500) ASSERT_EQ(block[i], 0);
    std::memset(block, 0xEE, static_cast<size_t>(bytes));
    for (const auto& [other, size] : blocks) EXPECT_TRUE(block + bytes <= other || other + size <= block);
    blocks.emplace_back(block, bytes);
    if (round % 3 == 2) {
      const size_t gone = static_cast<size_t>(round * 31) % blocks.size();
      arena->free(blocks[gone].first);
      blocks.erase(blocks.begin() + static_cast<long>(gone));
    }
  }
  for (const auto& [block, bytes] : blocks) arena->free(block);
  EXPECT_THROW(arena->allocate(int64_t{1} << 60), device::OutOfMemory);
  void* all = arena->allocate(int64_t{1} << 29);  // the gaps have become one again
  arena->free(all);
  EXPECT_THROW(arena->free(all), base::Bug);
}

TEST(ShmArena, GivesMemoryBackThoughSignalsInterrupt) {
  constexpr size_t kBytes = 3 * 4096;
  ShmArena arena;
  auto* const memory = static_cast<std::byte*>(arena.allocate(kBytes));
  std::fill_n(memory, kBytes, std::byte{7});
  interruptions = 3;
  arena.free(memory);
  EXPECT_EQ(interruptions, 0) << "the arena calls another function by now";
  EXPECT_EQ(arena.allocate(kBytes), memory);
  EXPECT_EQ(std::count(memory, memory + kBytes, std::byte{0}), static_cast<std::ptrdiff_t>(kBytes));
}

}  // namespace
}  // namespace lockstep::comm
