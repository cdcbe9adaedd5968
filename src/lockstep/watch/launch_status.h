// What a launcher knows of another program's ranks, left where `lockstep top` finds it: who runs, since when,
// how it ended, and the last line it printed. Written at most once a second, and only when something has
// changed.
//
//     LaunchStatusFile file(runtime_folder);        // in the launcher; gone when it goes
//     file.write({.ranks = ...});
//     for (const LaunchStatus& one : launches_in(runtime_folder)) ...
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/process_birth.h"

namespace lockstep::watch {

struct LaunchStatus {
  int pid = 0;  // the launcher's
  base::ProcessBirth birth;
  std::string command, folder, host;
  int node = 0, nodes = 1, restarts = 0;
  int64_t started_micros = 0;  // since 1970
  struct Rank {
    int rank = 0, pid = 0;
    std::optional<int> exit_code;
    std::string ending;  // "killed by SIGSEGV (11)"; empty: it runs
    std::string last_line;
  };
  std::vector<Rank> ranks;  // of this node
  std::string to_text() const;
  static std::optional<LaunchStatus> from_text(const std::string& text);
};

class LaunchStatusFile {
 public:
  explicit LaunchStatusFile(const std::string& folder);
  ~LaunchStatusFile();
  LaunchStatusFile(const LaunchStatusFile&) = delete;
  LaunchStatusFile& operator=(const LaunchStatusFile&) = delete;
  bool due() const;
  void write(const LaunchStatus& status);  // a disk that is full is no reason to stop anything

 private:
  std::string path_, written_;
  std::chrono::steady_clock::time_point at_{};
};

// Of launchers that live, by their number; what killed ones have left is removed.
std::vector<LaunchStatus> launches_in(const std::string& folder);

}  // namespace lockstep::watch
