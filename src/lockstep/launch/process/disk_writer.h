// A thread that writes to the run's disk for the launcher, which must not wait for one: a disk that stands
// still for a minute is no reason to be taken for dead, or not to hear a signal.
//
//     DiskWriter disk;
//     disk.post(line.size(), [=] { add_event(...); });   // in order; never waits
//
// What is posted while a disk stands still is kept up to a limit, and dropped beyond it; who can wait does
// when it is full().
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "lockstep/launch/options.h"

namespace lockstep::launch {

class DiskWriter {
 public:
  DiskWriter();
  ~DiskWriter();  // waits a moment for what was posted; a disk that does not answer keeps its thread
  DiskWriter(const DiskWriter&) = delete;
  DiskWriter& operator=(const DiskWriter&) = delete;

  void post(size_t bytes, std::function<void()> work);
  bool full() const;                // half of what it may keep waits
  bool drain(Duration most);        // false: not all was written in that time
  Duration standing_still() const;  // for how long the work at hand has not ended; 0: nothing to do

 private:
  struct State;
  std::shared_ptr<State> state_;  // its thread may outlive this
};

}  // namespace lockstep::launch
