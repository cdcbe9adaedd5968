// Signals are for our own threads: while one of these lives, threads that are started (by us, or by a library
// that we load) inherit a mask that lets no signal in. A signal that reaches a foreign thread where nobody
// has set a handler, because the launcher reads signals from a descriptor, would end the process.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace lockstep::base {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace lockstep::base
