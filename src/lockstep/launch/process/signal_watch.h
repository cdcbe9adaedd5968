// Signals as a descriptor that poll() can wait for, held back from the threads that are started meanwhile.
#pragma once

#include <signal.h>

#include <vector>

namespace lockstep::launch {

// As they were before when it goes out of scope; what came meanwhile and was not taken is forgotten. A SIGHUP
// that nohup ignores stays ignored.
class SignalWatch {
 public:
  explicit SignalWatch(const std::vector<int>& numbers);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  int descriptor() const { return descriptor_; }
  int take();  // the next one; 0: none
  // What SIGTSTP does where nobody catches it: this process stops until it is continued. Without a shell that
  // could do that, nothing happens.
  void stop_here() const;

 private:
  sigset_t before_;
  int descriptor_ = -1;
};

}  // namespace lockstep::launch
