// Ctrl-C and SIGTERM as a number that the training loop looks at between steps. A second Ctrl-C ends the
// program.
#pragma once

#include <atomic>

namespace lockstep::cli {

class StopSignal {
 public:
  StopSignal();   // installs the handlers
  ~StopSignal();  // puts the old ones back; once it was asked to end, SIGTERM says nothing new
  const std::atomic<int>& value() const;
};

}  // namespace lockstep::cli
