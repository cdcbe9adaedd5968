#include "lockstep/run/shared/run_lock.h"

#include <chrono>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::run {

namespace {

constexpr const char* kRankLock = ".rank-0.lock";
// For the last rank of a launcher that was killed, whose guard is ending it.
constexpr auto kPatience = std::chrono::seconds(5);

void wait_for_rank(const std::string& folder) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    try {
      const base::FolderLock free(folder, kRankLock);
      return;
    } catch (const base::ConfigError&) {
      if (std::chrono::steady_clock::now() - begin > kPatience) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

RunLock::RunLock(const std::string& folder, Holder holder) {
  base::make_folders(folder);
  if (holder != Holder::rank) run_.emplace(folder);
  if (holder == Holder::launcher) {
    wait_for_rank(folder);
  } else {
    rank_.emplace(folder, kRankLock);
  }
}

}  // namespace lockstep::run
