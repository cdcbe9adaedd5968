// Snapshots that outlive their launcher: what comes back is what was kept, or nothing.
#include "lockstep/launch/rendezvous/kept_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/run/shared/snapshot_memory.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

run::SnapshotCopy copy_of(int64_t step, char letter) {
  run::SnapshotCopy copy{7, 0, step + 1, std::vector<char>(8192, letter)};
  copy.checksum = run::snapshot_checksum(copy.bytes.data(), 8192);
  return copy;
}

std::vector<std::pair<int64_t, char>> held_by(int descriptor) {
  std::vector<std::pair<int64_t, char>> held;
  run::visit_whole(descriptor,
                   [&](const run::SnapshotView& one) { held.emplace_back(one.commit - 1, one.data[100]); });
  return held;
}

TEST(KeptMemory, ComesBackAsItWas) {
  const base::TemporaryFolder folder;
  const RankMemories memories(3);
  run::write_copies(memories.descriptor(0), {copy_of(50, 'a'), copy_of(49, 'b')});
  run::write_copies(memories.descriptor(2), {copy_of(50, 'c')});
  EXPECT_EQ(KeptMemory(memories, folder.path()).keep(4, 10s).problem, "");
  const RankMemories later(3);
  KeptMemory kept(later, folder.path());
  EXPECT_EQ(kept.bring_back(4), 50);
  EXPECT_EQ(held_by(later.descriptor(0)), (std::vector<std::pair<int64_t, char>>{{50, 'a'}, {49, 'b'}}));
  EXPECT_FALSE(later.used(1));
  EXPECT_EQ(held_by(later.descriptor(2)), (std::vector<std::pair<int64_t, char>>{{50, 'c'}}));
  EXPECT_EQ(later.steps().saved, 50) << "it stands on disk";
  const RankMemories others(3);
  EXPECT_EQ(KeptMemory(others, folder.path()).bring_back(0), 0) << "they are other ranks'";
  kept.forget();
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/snapshots"));
}

// A file that was renamed holds another rank's weights.
TEST(KeptMemory, OfAnotherRankIsNotTaken) {
  const base::TemporaryFolder folder;
  const RankMemories memories(1);
  run::write_copies(memories.descriptor(0), {copy_of(50, 'a')});
  ASSERT_EQ(KeptMemory(memories, folder.path()).keep(3, 10s).problem, "");
  std::filesystem::copy_file(kept_path(folder.path(), 3), kept_path(folder.path(), 0));
  for (const int rank : {0, 3}) {
    const int memory = ::memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(bring_back_memory(memory, folder.path(), rank), rank == 3) << rank;
    ::close(memory);
  }
}

// A disk that is full (here: a limit on the size of files) keeps nothing of what did not fit on it.
TEST(KeptMemory, WhatDoesNotFitLeavesNothingBehind) {
  const base::TemporaryFolder folder;
  const RankMemories memories(1);
  run::write_copies(memories.descriptor(0), {copy_of(50, 'a'), copy_of(49, 'b')});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handled = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 10'000, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string problem = KeptMemory(memories, folder.path()).keep(0, 10s).problem;
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handled);
  EXPECT_NE(problem.find("rank-0.snapshot.new cannot be written"), std::string::npos) << problem;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/snapshots"));
}

// Whatever happens to the file, what is brought back is whole, and was kept.
TEST(KeptMemory, DamageIsNotBelieved) {
  const base::TemporaryFolder folder;
  const RankMemories memories(1);
  run::write_copies(memories.descriptor(0), {copy_of(50, 'a')});
  ASSERT_EQ(KeptMemory(memories, folder.path()).keep(0, 10s).problem, "");
  const std::string path = kept_path(folder.path(), 0);
  const auto size = std::filesystem::file_size(path);
  for (const size_t at : {size_t{0}, size_t{8}, size_t{16}, size_t{24}, size_t{32}, size_t{40}, size_t{48},
                          size_t{55}, size_t{56}, size_t{size - 1}}) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char before = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(before ^ 0x80));
    file.close();
    const int memory = ::memfd_create("test", MFD_CLOEXEC);
    EXPECT_FALSE(bring_back_memory(memory, folder.path(), 0)) << at;
    ::close(memory);
    std::fstream again(path, std::ios::in | std::ios::out | std::ios::binary);
    again.seekp(static_cast<std::streamoff>(at));
    again.put(before);
  }
  for (const auto length : {uintmax_t{0}, uintmax_t{1}, uintmax_t{47}, uintmax_t{48}, size - 1}) {
    std::filesystem::resize_file(path, length);
    const int memory = ::memfd_create("test", MFD_CLOEXEC);
    EXPECT_FALSE(bring_back_memory(memory, folder.path(), 0)) << length;
    ::close(memory);
    std::filesystem::resize_file(path, size);
  }
}

TEST(KeptMemory, WhatCannotBeWrittenIsSaid) {
  const base::TemporaryFolder folder;
  std::ofstream(folder.path() + "/snapshots") << "in the way";
  const RankMemories memories(1);
  run::write_copies(memories.descriptor(0), {copy_of(50, 'a')});
  EXPECT_NE(KeptMemory(memories, folder.path()).keep(0, 10s).problem, "");
}

}  // namespace
}  // namespace lockstep::launch
