#include "lockstep/launch/process/rank_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/number.h"
#include "lockstep/launch/options.h"

namespace lockstep::launch {

namespace {

std::optional<int64_t> number(const char* name) {
  const std::optional<std::string> text = process_variable(name);
  if (!text) return std::nullopt;
  const std::optional<int64_t> value = base::parse_number(*text);
  return value && *value >= 0 ? value : std::nullopt;
}

}  // namespace

RankMemories::RankMemories(int ranks) {
  for (int k = 0; k < ranks; ++k) descriptors_.push_back(::memfd_create("lockstep-snapshots", MFD_CLOEXEC));
}

RankMemories::~RankMemories() {
  for (const int one : descriptors_) {
    if (one >= 0) ::close(one);
  }
}

bool RankMemories::used(int local_rank) const {
  struct stat now {};
  const int one = descriptor(local_rank);
  return one >= 0 && ::fstat(one, &now) == 0 && now.st_size > 0;
}

bool RankMemories::used() const {
  for (size_t k = 0; k < descriptors_.size(); ++k) {
    if (!used(static_cast<int>(k))) return false;
  }
  return true;
}

run::SnapshotSteps RankMemories::steps() const {
  run::SnapshotSteps furthest;
  for (const int one : descriptors_) {
    const run::SnapshotSteps steps = one >= 0 ? run::snapshot_steps(one) : run::SnapshotSteps{};
    furthest.newest = std::max(furthest.newest, steps.newest);
    furthest.saved = std::max(furthest.saved, steps.saved);
  }
  return furthest;
}

int RankMemories::descriptor(int local_rank) const {
  const auto k = static_cast<size_t>(local_rank);
  return k < descriptors_.size() ? descriptors_[k] : -1;
}

int rank_memory() {
  const std::optional<int64_t> descriptor = number("LOCKSTEP_MEMORY_FD");
  if (!descriptor || *descriptor < 3 || *descriptor > 1024) return -1;
  const int mine = static_cast<int>(*descriptor);
  return ::fcntl(mine, F_GETFD) >= 0 ? mine : -1;
}

bool under_launcher() { return process_variable("LOCKSTEP_STORE").has_value(); }

bool started_again() { return under_launcher() && number("LOCKSTEP_ROUND").value_or(0) > 0; }

std::filesystem::file_time_type launched_at() {
  const std::optional<int64_t> millis = number("LOCKSTEP_LAUNCHED");
  if (!millis) return std::filesystem::file_time_type::min();
  return std::chrono::file_clock::from_sys(
      std::chrono::sys_time<std::chrono::milliseconds>(std::chrono::milliseconds(*millis)));
}

}  // namespace lockstep::launch
