// The request to stop, as a number that the training loop looks at between steps: Ctrl-C, SIGTERM, SIGUSR1
// (Slurm's warning), a dropped terminal (SIGHUP, unless nohup ignores it) and SIGQUIT.
//
//     StopSignal signal;             // from here on a request to stop ends with 75: there is nothing to save
//     yet
//     ... plan, join the others ...
//     signal.arm();                  // from here on it is a number
//
// A second Ctrl-C ends the program, unless a save is in progress: nothing breaks that. A command may make one
// before it reads anything, so that no moment of it is left to the signals' defaults; one inside another is
// the same signal.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>

namespace lockstep::training {

class StopSignal {
 public:
  // Installs the handlers. `only_saves`: this process is there to save what its predecessors left, and does
  // not let itself be stopped.
  explicit StopSignal(bool only_saves = false);
  ~StopSignal();  // puts the old ones back; once it was asked to end, all but SIGINT say nothing new
  void arm() const;
  const std::atomic<int>& value() const;
  void saving(bool now) const;

 private:
  std::array<struct sigaction, 5> before_{};
};

}  // namespace lockstep::training
