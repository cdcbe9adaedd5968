// Runs whose metrics are held in memory because somebody looks at them; those looked at longest ago go first.
//
//     OpenRuns runs;
//     const auto run = runs.open("runs/first");     // reads what is new
//     const std::lock_guard lock(run->mutex);
//     run->log.rows() ...
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/see/run_events.h"
#include "lockstep/see/run_log.h"

namespace lockstep::see {

struct OpenRun {
  explicit OpenRun(const std::string& folder) : log(folder) {}
  std::mutex mutex;  // held while anything below is used
  RunLog log;
  std::vector<RunEvent> events;
  int64_t polled_ns = 0;
};

class OpenRuns {
 public:
  // With its newest rows, or those of at most half a second ago. Throws what RunLog throws. Runs are read
  // beside each other: one that takes long holds up only those who ask for it.
  std::shared_ptr<OpenRun> open(const std::string& folder);

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<OpenRun>> runs_;  // the newest look first
};

}  // namespace lockstep::see
