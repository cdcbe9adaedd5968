#include "lockstep/cli/stop_signal.h"

#include <signal.h>
#include <unistd.h>

namespace lockstep::cli {

namespace {

// A handler can reach nothing but a global; this is the only one, and only StopSignal touches it.
std::atomic<int> received{0};
struct sigaction old_interrupt, old_terminate;

// A SIGINT after a SIGTERM is the same wish twice, by two ways.
void handle(int number) {
  if (received.exchange(number) == SIGINT && number == SIGINT) _exit(130);
}

}  // namespace

StopSignal::StopSignal() {
  received = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  sigaction(SIGINT, &action, &old_interrupt);
  sigaction(SIGTERM, &action, &old_terminate);
}

// A scheduler and a launcher may both pass the same SIGTERM on: the one that comes late must not turn "saved"
// into "killed".
StopSignal::~StopSignal() {
  sigaction(SIGINT, &old_interrupt, nullptr);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGTERM, received == 0 ? &old_terminate : &ignore, nullptr);
}

const std::atomic<int>& StopSignal::value() const { return received; }

}  // namespace lockstep::cli
