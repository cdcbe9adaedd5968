#include "lockstep/training/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <iterator>
#include <tuple>

#include "lockstep/launch/failure.h"

namespace lockstep::training {

namespace {

// A handler can reach nothing but globals; these are the only ones, and only StopSignal touches them.
std::atomic<int> received{0};
std::atomic<bool> armed{false}, saves{false};
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGQUIT};

// A SIGINT after a SIGTERM is the same request twice, by two ways.
void handle(int number) {
  if (!armed) {
    static constexpr char kWord[] =
        "lockstep: stopped before there was anything to save; run the same command again\n";
    [[maybe_unused]] const ssize_t got = ::write(STDERR_FILENO, kWord, sizeof kWord - 1);
    _exit(launch::kPreempted);
  }
  if (received.exchange(number) == SIGINT && number == SIGINT && !saves) _exit(130);
}

}  // namespace

StopSignal::StopSignal(bool only_saves) {
  static_assert(std::size(kSignals) == std::tuple_size_v<decltype(before_)>);
  received = 0;
  armed = saves = only_saves;
  struct sigaction action {};
  action.sa_handler = handle;
  for (size_t k = 0; k < std::size(kSignals); ++k) {
    sigaction(kSignals[k], nullptr, &before_[k]);
    const bool nohup = kSignals[k] == SIGHUP && before_[k].sa_handler == SIG_IGN;
    if (!nohup) sigaction(kSignals[k], &action, nullptr);
  }
}

// A scheduler and a launcher may both pass the same SIGTERM on: the one that comes late must not turn "saved"
// into "killed".
StopSignal::~StopSignal() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (size_t k = 0; k < std::size(kSignals); ++k) {
    const bool late = received != 0 && kSignals[k] != SIGINT;
    sigaction(kSignals[k], late ? &ignore : &before_[k], nullptr);
  }
}

void StopSignal::arm() const { armed = true; }
const std::atomic<int>& StopSignal::value() const { return received; }
void StopSignal::saving(bool now) const { saves = now; }

}  // namespace lockstep::training
