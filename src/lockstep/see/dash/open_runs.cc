#include "lockstep/see/dash/open_runs.h"

#include <algorithm>

#include "lockstep/base/clock.h"

namespace lockstep::see {

std::shared_ptr<OpenRun> OpenRuns::open(const std::string& folder) {
  constexpr size_t kMost = 100;
  constexpr int64_t kFreshEnough = 500'000'000;  // nanoseconds
  std::shared_ptr<OpenRun> run;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(runs_.begin(), runs_.end(),
                                    [&](const auto& one) { return one->log.folder() == folder; });
    if (found != runs_.end()) {
      run = *found;
      runs_.erase(found);
    } else {
      run = std::make_shared<OpenRun>(folder);
    }
    runs_.push_front(run);
    if (runs_.size() > kMost) runs_.pop_back();
  }
  const std::lock_guard lock(run->mutex);
  const int64_t now = base::monotonic_ns();
  if (run->polled_ns != 0 && now - run->polled_ns < kFreshEnough) return run;
  run->log.poll();
  run->events = read_events(folder);
  run->polled_ns = base::monotonic_ns();
  return run;
}

}  // namespace lockstep::see
