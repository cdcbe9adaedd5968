#include "lockstep/launch/process/signal_watch.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace lockstep::launch {

SignalWatch::SignalWatch(const std::vector<int>& numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    const bool nohup = number == SIGHUP && action.sa_handler == SIG_IGN;
    if (!nohup) sigaddset(&set, number);
  }
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  descriptor_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

SignalWatch::~SignalWatch() {
  while (take() != 0) {
  }
  ::close(descriptor_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int SignalWatch::take() {
  signalfd_siginfo information;
  const bool got = ::read(descriptor_, &information, sizeof information) > 0;
  return got ? static_cast<int>(information.ssi_signo) : 0;
}

void SignalWatch::stop_here() const {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  ::raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
}

}  // namespace lockstep::launch
