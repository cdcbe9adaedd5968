#include "lockstep/checkpoint/checked_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kBytes = 67 * kChunkBytes + 12;  // enough for several threads, and an end that is no chunk

std::vector<uint32_t> counted() {
  std::vector<uint32_t> words(static_cast<size_t>(kBytes / 4));
  std::iota(words.begin(), words.end(), 1);
  return words;
}

struct Large {
  Large() : words(counted()), bytes(std::as_bytes(std::span(words))) {
    ChunkSums made(kBytes);
    made.add(0, bytes);
    sums = made.finish();
    path = folder.write("large", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  base::TemporaryFolder folder;
  std::vector<uint32_t> words;
  std::span<const std::byte> bytes;
  std::vector<uint32_t> sums;
  std::string path;
};

TEST(CheckedFile, EveryThreadsPartArrives) {
  const Large large;
  for (const bool checked : {true, false}) {
    const CheckedFile file(large.path, checked ? std::optional(large.sums) : std::nullopt);
    for (const int64_t at : {int64_t{0}, int64_t{5}, 3 * kChunkBytes + 1}) {
      std::vector<std::byte> got(static_cast<size_t>(kBytes - at));
      file.read({{.at = at, .bytes = kBytes - at, .to = got.data()}});
      EXPECT_TRUE(std::equal(got.begin(), got.end(), large.bytes.begin() + at)) << at << " " << checked;
    }
  }
}

TEST(CheckedFile, OneWrongBitInAnyPartIsFound) {
  const Large large;
  for (const size_t chunk : {0, 16, 33, 50, 67}) {
    std::vector<uint32_t> sums = large.sums;
    sums[chunk] ^= 1;
    const CheckedFile file(large.path, sums);
    EXPECT_THROW(file.check_all(), base::DataError) << chunk;
  }
}

// In a process of its own, which may open nothing more.
TEST(CheckedFile, IsReadWithoutAFreeDescriptor) {
  const Large large;
  const CheckedFile file(large.path, large.sums);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NOFILE, &none) != 0 || ::dup(0) >= 0) ::_exit(2);
    try {
      std::vector<std::byte> got(static_cast<size_t>(kBytes));
      file.read({{.at = 0, .bytes = kBytes, .to = got.data()}});
      ::_exit(std::equal(got.begin(), got.end(), large.bytes.begin()) ? 0 : 3);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(4);
    }
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep::checkpoint
