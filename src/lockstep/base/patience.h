// How long to wait for something that makes progress: as long as it does, and a while longer.
//
//     Patience patience(120s);
//     while (!done() && patience.lasts(bytes_written())) sleep();
//
// Whatever number stands for the progress, each change of it begins the wait again. Where the changes are far
// between, silence may last ten times as long as the longest that one has come after: a slow machine is no
// failure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace lockstep::base {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kTimesLongest = 10;

  explicit Patience(Clock::duration silence, Clock::time_point now = Clock::now())
      : silence_(silence), changed_(now) {}

  bool lasts(int64_t progress, Clock::time_point now = Clock::now()) {
    if (progress != progress_) {
      longest_ = std::max(longest_, now - changed_);
      progress_ = progress, changed_ = now;
    }
    return now - changed_ < std::max(silence_, kTimesLongest * longest_);
  }

 private:
  Clock::duration silence_, longest_{0};
  Clock::time_point changed_;
  int64_t progress_ = 0;
};

}  // namespace lockstep::base
