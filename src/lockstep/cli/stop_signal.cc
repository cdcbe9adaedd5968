#include "lockstep/cli/stop_signal.h"

#include <signal.h>
#include <unistd.h>

namespace lockstep::cli {

namespace {

// A handler can reach nothing but globals; these are the only ones, and only StopSignal touches them.
std::atomic<int> received{0};
std::atomic<bool> saves{false};
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};
struct sigaction before[3];

// A SIGINT after a SIGTERM is the same wish twice, by two ways.
void handle(int number) {
  if (received.exchange(number) == SIGINT && number == SIGINT && !saves) _exit(130);
}

}  // namespace

StopSignal::StopSignal() {
  received = 0;
  saves = false;
  struct sigaction action {};
  action.sa_handler = handle;
  for (size_t k = 0; k < 3; ++k) sigaction(kSignals[k], &action, &before[k]);
}

// A scheduler and a launcher may both pass the same SIGTERM on: the one that comes late must not turn "saved"
// into "killed".
StopSignal::~StopSignal() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (size_t k = 0; k < 3; ++k) {
    const bool late = received != 0 && kSignals[k] != SIGINT;
    sigaction(kSignals[k], late ? &ignore : &before[k], nullptr);
  }
}

const std::atomic<int>& StopSignal::value() const { return received; }
void StopSignal::saving(bool now) const { saves = now; }

}  // namespace lockstep::cli
