// What ranks leave in the launcher's memory: brought back before they start, kept when the launcher ends.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/launch/agent_loop.h"
#include "lockstep/run/shared/preemption.h"

namespace lockstep::launch {

namespace {

constexpr Duration kMostToKeep{30000};  // for writing the ranks' memory to disk, where nothing else limits it

}  // namespace

// Once, before the first ranks of this launcher.
void Agent::bring_back_memory() {
  if (!kept_) return;
  if (job_.from_scratch) return kept_->forget();
  brought_back_ = kept_->bring_back(first_rank_);
}

void Agent::say_rescue() const {
  if (rendezvous_.place()->node != 0) return;
  const std::string what = "restarting ranks once more, only to save what is in memory";
  say(what);
  add_event("restart", state_.leader.why.empty() ? what : state_.leader.why + "; " + what,
            memories_->steps().newest);
}

bool Agent::holds_unsaved() const {
  if (!memories_) return false;
  const run::SnapshotSteps steps = memories_->steps();
  return steps.newest > std::max(steps.saved, saved_.load());
}

// Steps that no checkpoint has, and nobody is left to save: the launcher keeps them itself. False: it could
// not.
bool Agent::keep_memory() const {
  if (!job_.own_program || !holds_unsaved()) return true;
  const int64_t step = memories_->steps().newest;
  const Duration most =
      state_.end_by ? std::max(kDeaf, std::chrono::duration_cast<Duration>(*state_.end_by - Clock::now()))
                    : kMostToKeep;
  const std::string problem = kept_->keep(first_rank_, most);
  say(problem.empty()
          ? fmt::format("step {} is in no checkpoint and was written to {}/snapshots; the same command "
                        "resumes from there",
                        step, job_.run_folder)
          : fmt::format("step {} is in no checkpoint and could not be written: {}", step, problem));
  return problem.empty();
}

// Called by a thread of its own while the launcher itself does not get to it: nothing here may wait for
// anybody.
void Agent::end_now(int number) {
  const char* const why = number != 0 ? "lockstep: the launcher does not react to the signal and exits now\n"
                                      : "lockstep: the launcher's grace period is over; it exits now\n";
  std::string problem;
  const bool keeps = job_.own_program && holds_unsaved();
  if (keeps) problem = kept_->keep(first_rank_, kDeaf);
  pollfd console{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&console, 1, 0) == 1 && (console.revents & POLLOUT)) {
    [[maybe_unused]] const ssize_t got = ::write(STDERR_FILENO, why, std::strlen(why));
  }
  // The guard ends the ranks when it finds this process gone.
  ::_exit(!job_.own_program           ? 128 + (number != 0 ? number : signal_.load())
          : keeps && !problem.empty() ? 1
                                      : kPreempted);
}

int Agent::finish(const State& state) {
  int code = state.code;
  if (code != 0 && !keep_memory() && code == kPreempted) code = 1;
  if (kept_ && brought_back_ > 0 && memories_->steps().saved > brought_back_) kept_->forget();
  rendezvous_.say_goodbye();
  const bool hurries = state_.stop >= Stop::passed;
  drain_console(hurries ? kShortDrain : Duration::max());
  disk_.drain(hurries ? kShortDrain : kMostToKeep);
  if (code != 0 && state.nodes.empty() && state.signal == 0) throw base::CommError(536, state.why);
  return code;
}

}  // namespace lockstep::launch
