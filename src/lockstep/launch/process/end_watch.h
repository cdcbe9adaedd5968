// Sees to it that a launcher that was told to end does, whatever it is doing: a disk that does not answer, a
// store that is out of reach, a bug.
//
// A thread of its own looks at signals that wait to be taken and at the time by which the launcher must be
// gone. When either has waited too long, it calls `end`, which saves what it can and does not come back.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/launch/options.h"

namespace lockstep::launch {

class EndWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // `signals` are blocked in every thread, and taken by the launcher's loop within `patience`. `end` gets the
  // number of the one that was not, or 0 when the time of end_by() has come.
  EndWatch(std::vector<int> signals, Duration patience, std::function<void(int number)> end);
  void end_by(Clock::time_point when) { end_by_ = when.time_since_epoch().count(); }  // from any thread

 private:
  void watch(const std::stop_token& stop);
  int pending() const;

  const std::vector<int> signals_;
  const Duration patience_;
  const std::function<void(int)> end_;
  std::atomic<Clock::rep> end_by_{0};  // 0: whenever it likes
  std::jthread thread_;                // last: it uses the others
};

}  // namespace lockstep::launch
