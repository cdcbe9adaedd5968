// Who may write in a run's folder: one run at a time, and of that run one process at a time.
//
//     .lock         the run's: its launcher holds it, or its first rank where no launcher of ours started it
//     .rank-0.lock  the first rank's, which writes; one that outlives its launcher still keeps others away
//
// Taken before anything in the folder is touched, so that a start that is refused leaves a living run alone.
// Where several nodes share the folder, the leading launcher's lock is the run's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/file.h"

namespace lockstep::run {

enum class Holder : uint8_t {
  launcher,  // holds the run's lock while it starts rank after rank
  rank,      // the first one of such a launcher
  alone      // nobody above it: both
};

class RunLock {
 public:
  RunLock(const std::string& folder, Holder holder);  // makes the folder. ConfigError 804: who holds it

 private:
  std::optional<base::FolderLock> run_, rank_;
};

}  // namespace lockstep::run
