// Ctrl-C, SIGTERM and SIGUSR1 (Slurm's warning) as a number that the training loop looks at between steps. A
// second Ctrl-C ends the program, unless a save is in progress: nothing breaks that.
#pragma once

#include <atomic>

namespace lockstep::cli {

class StopSignal {
 public:
  StopSignal();   // installs the handlers
  ~StopSignal();  // puts the old ones back; once it was asked to end, SIGTERM and SIGUSR1 say nothing new
  const std::atomic<int>& value() const;
  void saving(bool now) const;
};

}  // namespace lockstep::cli
