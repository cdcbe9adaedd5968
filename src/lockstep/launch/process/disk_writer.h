// A thread that writes to the run's disk for the launcher, which must not wait for one: a disk that stands
// still for a minute is no reason to be taken for dead, or not to hear a signal.
//
//     DiskWriter disk(process);
//     disk.post(append, {text}, log);   // in order; never waits
//
// What is posted while a disk stands still is kept up to a limit, and dropped beyond it; who can wait does
// when it is full().
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/process/disk_process.h"

namespace lockstep::launch {

class DiskWriter {
 public:
  // In that process, or in this one where there is none.
  explicit DiskWriter(std::shared_ptr<DiskProcess> process = nullptr);
  ~DiskWriter();  // waits a moment for what was posted; a disk that does not answer keeps its thread
  DiskWriter(const DiskWriter&) = delete;
  DiskWriter& operator=(const DiskWriter&) = delete;

  void post(size_t bytes, std::function<void()> work);
  void post(DiskWork work, std::vector<std::string> words,
            std::shared_ptr<const base::Descriptor> file = nullptr);
  bool full() const;                // half of what it may keep waits
  bool drain(Duration most);        // false: not all was written in that time
  Duration standing_still() const;  // for how long the work at hand has not ended; 0: nothing to do

 private:
  std::shared_ptr<DiskProcess> process_;
  struct State;
  std::shared_ptr<State> state_;  // its thread may outlive this
};

}  // namespace lockstep::launch
