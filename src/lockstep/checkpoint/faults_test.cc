// Saves that end badly: a disk that fills at any byte, a process killed at any moment, bits that flip.
// Whatever happens, list() tells only of checkpoints that load, and what loads has the right bits.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

// The seed of this run, or the one to repeat: LOCKSTEP_SEED=N.
uint64_t seed_of_run() {
  const char* given = std::getenv("LOCKSTEP_SEED");
  const uint64_t seed = given ? std::stoull(given) : std::random_device{}();
  fmt::print("repeat with LOCKSTEP_SEED={}\n", seed);
  return seed;
}

// Nothing but whole checkpoints in the run, each with the bits of its step.
bool only_good_ones(const std::string& run, int64_t rows) {
  for (const std::string& folder : list(run)) {
    Tensors memory;
    const Opened opened(folder);
    if (!holds(opened, contents_of(memory, opened.manifest()->step, rows))) return false;
  }
  return true;
}

// Runs the action in a process of its own; 77 says that this machine does not allow it.
int exit_of_child(const std::function<int()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    int result = 99;
    try {
      result = action();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// With the first checkpoint on a disk with room for so many KiB, saves a second.
// 0: saved; 1: refused and the first stands alone; more: what went wrong.
int save_on_small_disk(const std::string& run, int64_t rows) {
  Tensors memory;
  try {
    save(run, contents_of(memory, 2, rows), 1);
  } catch (const base::IoError& error) {
    if (error.number() != 807) return 2;
    const bool alone = list(run).size() == 1 && !fs::exists(run + "/checkpoints/step-00000002");
    return !alone ? 3 : only_good_ones(run, rows) ? 1 : 4;
  }
  return list(run).size() != 1 ? 5 : only_good_ones(run, rows) ? 0 : 6;
}

// A file system of its own that goes away with the process.
bool mount_small_disk(const std::string& folder, int64_t kib) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return ::mount("lockstep", folder.c_str(), "tmpfs", 0, fmt::format("size={}k", kib).c_str()) == 0;
}

TEST(Faults, AFullDiskLeavesTheLastCheckpoint) {
  constexpr int64_t kRows = 512;  // a checkpoint of about 50 KiB
  base::TemporaryFolder folder;
  int saved = 0, refused = 0;
  for (int64_t kib = 80; kib <= 180; kib += 4) {
    const int result = exit_of_child([&] {
      if (!mount_small_disk(folder.path(), kib)) return 77;
      Tensors memory;
      save(folder.path(), contents_of(memory, 1, kRows), 1);
      return save_on_small_disk(folder.path(), kRows);
    });
    if (result == 77) GTEST_SKIP() << "mounting a file system is not allowed here";
    EXPECT_LE(result, 1) << kib;
    ++(result == 0 ? saved : refused);
  }
  EXPECT_GT(saved, 2);
  EXPECT_GT(refused, 2);
}

TEST(Faults, AFileThatMayNotGrowLeavesTheLastCheckpoint) {
  constexpr int64_t kRows = 512;
  base::TemporaryFolder folder;
  Tensors memory;
  int saved = 0, refused = 0;
  for (const rlim_t limit : {0u, 1u, 100u, 4096u, 16'384u, 20'000u, 40'000u}) {
    save(folder.path(), contents_of(memory, 1, kRows), 1);
    const int result = exit_of_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit tight{limit, limit};
      return ::setrlimit(RLIMIT_FSIZE, &tight) != 0 ? 77 : save_on_small_disk(folder.path(), kRows);
    });
    EXPECT_LE(result, 1) << limit;
    ++(result == 0 ? saved : refused);
    fs::remove_all(folder.path() + "/checkpoints");
  }
  EXPECT_EQ(saved, 1);
  EXPECT_EQ(refused, 6);
}

TEST(Faults, KilledAtAnyMoment) {
  constexpr int64_t kRows = 20'000;
  std::mt19937_64 random(seed_of_run());
  base::TemporaryFolder run;
  Tensors first;
  const auto begin = std::chrono::steady_clock::now();
  save(run.path(), contents_of(first, 1, kRows), 2);
  const auto one_save = std::chrono::steady_clock::now() - begin;
  int64_t newest = 1;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);  // if the parent dies first
      Tensors memory;
      for (int64_t step = newest + 1;; ++step) save(run.path(), contents_of(memory, step, kRows), 2);
    }
    std::this_thread::sleep_for(one_save * static_cast<int64_t>(random() % 3000) / 1000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ASSERT_TRUE(only_good_ones(run.path(), kRows)) << round;
    const std::vector<std::string> whole = list(run.path());
    ASSERT_FALSE(whole.empty());
    const int64_t now = Opened(whole[0]).manifest()->step;
    ASSERT_GE(now, newest);  // what was once whole is never lost
    newest = now;
  }
  EXPECT_GT(newest, 1);
  // Kills between commit and retention leave too many; the next save that lives removes them.
  save(run.path(), contents_of(first, newest + 1, kRows), 2);
  EXPECT_EQ(list(run.path()).size(), 2u);
  EXPECT_EQ(std::distance(fs::directory_iterator(run.path() + "/checkpoints"), {}), 3);  // and the hint
}

std::string mutated(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  switch (below(4)) {
    case 0:
      bytes.resize(below(bytes.size()));
      break;
    case 1:
      bytes.insert(below(bytes.size()), 1 + below(16), static_cast<char>(random()));
      break;
    case 2:
      bytes[below(std::min<size_t>(bytes.size(), 64))] = static_cast<char>(random());
      break;
    default:
      for (size_t flips = 1 + below(3); flips > 0; --flips)
        bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
  }
  return bytes;
}

// In place: cutting a file to nothing costs milliseconds on some disks, and we write thousands.
void put(const std::string& path, const std::string& bytes) {
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes;
  fs::resize_file(path, bytes.size());
}

TEST(Faults, MutatedCheckpointsAreRefusedOrRight) {
  std::mt19937_64 random(seed_of_run());
  base::TemporaryFolder run;
  Tensors memory;
  const Contents contents = contents_of(memory, 1);
  const std::string folder = save(run.path(), contents, 1);
  std::vector<std::pair<std::string, std::string>> files;  // path, bytes
  for (const auto& entry : fs::directory_iterator(folder)) {
    files.emplace_back(entry.path().string(), base::read_file(entry.path().string()));
  }
  int refused = 0;
  const int rounds = std::getenv("LOCKSTEP_LONG") != nullptr ? 3000 : 500;
  for (int round = 0; round < rounds; ++round) {
    const auto& [path, good] = files[random() % files.size()];
    put(path, mutated(good, random));
    try {
      ASSERT_TRUE(holds(Opened(folder), contents)) << path << " in round " << round;
    } catch (const base::DataError&) {
      ++refused;
    }
    put(path, good);
  }
  EXPECT_GT(refused, rounds * 5 / 6);
}

TEST(Faults, MutatedForeignFilesNeverLeadOutOfTheFile) {
  // Without a manifest nothing tells that data changed; but what is handed out lies within the file.
  std::mt19937_64 random(seed_of_run());
  base::TemporaryFolder folder;
  Tensors memory;
  const std::string path = folder.path() + "/model.safetensors";
  write_safetensors(path, contents_of(memory, 1, 2).model, {{"format", "pt"}});
  const std::string good = base::read_file(path);
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    put(path, mutated(good, random));
    try {
      const Opened opened(folder.path());
      const SafetensorsFile file(path);
      ++accepted;
      for (const auto& [name, entry] : file.entries()) {
        ASSERT_GE(entry.begin, 8);
        ASSERT_LE(entry.end, static_cast<int64_t>(fs::file_size(path)));
        ASSERT_EQ(tensor_bytes(file, entry).size(), static_cast<size_t>(entry.end - entry.begin));
      }
    } catch (const base::DataError&) {
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 3000);
}

}  // namespace
}  // namespace lockstep::checkpoint
