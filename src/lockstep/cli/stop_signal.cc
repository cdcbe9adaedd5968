#include "lockstep/cli/stop_signal.h"

#include <signal.h>
#include <unistd.h>

namespace lockstep::cli {

namespace {

// A handler can reach nothing but a global; this is the only one, and only StopSignal touches it.
std::atomic<int> received{0};
struct sigaction old_interrupt, old_terminate;

void handle(int number) {
  if (received.exchange(number) != 0 && number == SIGINT) _exit(130);
}

}  // namespace

StopSignal::StopSignal() {
  received = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  sigaction(SIGINT, &action, &old_interrupt);
  sigaction(SIGTERM, &action, &old_terminate);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
}

const std::atomic<int>& StopSignal::value() const { return received; }

}  // namespace lockstep::cli
