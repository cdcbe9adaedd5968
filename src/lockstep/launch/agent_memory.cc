// What ranks leave in the launcher's memory: brought back before they start, kept when the launcher ends.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/launch/agent_loop.h"
#include "lockstep/run/shared/preemption.h"

namespace lockstep::launch {

namespace {

constexpr Duration kMostToKeep{30000};  // for writing the ranks' memory to disk, where nothing else limits it

// The newest checkpoint stays: a disk that does not respond now is no reason not to run again.
std::string not_kept(int64_t step, const KeptMemory::Kept& kept) {
  return fmt::format(
      "step {} is in no checkpoint and could not be written: {}{}", step, kept.problem,
      kept.responding ? "" : "; once it responds, the same command resumes from its newest checkpoint");
}

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

// A disk that has not responded for a while is not waited for much longer.
KeptMemory::Kept Agent::keep_within(Duration most) const {
  const Duration still = disk_.standing_still(), left = still > kDeaf ? std::min(most, kShortDrain) : most;
  KeptMemory::Kept kept = kept_->keep(first_rank_, left);
  if (!kept.responding) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(still + left);
    kept.problem = fmt::format("{} has not responded for {} s", job_.run_folder, seconds.count());
  }
  return kept;
}

// Steps that no checkpoint has, and nobody is left to save: the launcher keeps them itself.
KeptMemory::Kept Agent::keep_memory() const {
  if (!job_.own_program || !holds_unsaved()) return {};
  const int64_t step = memories_->steps().newest;
  const Duration most =
      state_.end_by ? std::max(kDeaf, std::chrono::duration_cast<Duration>(*state_.end_by - Clock::now()))
                    : kMostToKeep;
  KeptMemory::Kept kept = keep_within(most);
  say(kept.problem.empty()
          ? fmt::format("step {} is in no checkpoint and was written to {}/snapshots; the same command "
                        "resumes from there",
                        step, job_.run_folder)
          : not_kept(step, kept));
  return kept;
}

// Called by a thread of its own while the launcher itself does not get to it: nothing here may wait for
// anybody.
void Agent::end_now(int number) {
  std::string why = number != 0 ? "lockstep: the launcher does not react to the signal and exits now\n"
                                : "lockstep: the launcher's grace period is over; it exits now\n";
  KeptMemory::Kept kept;
  if (job_.own_program && holds_unsaved()) kept = keep_within(kDeaf);
  if (!kept.problem.empty()) why += "lockstep: " + not_kept(memories_->steps().newest, kept) + "\n";
  pollfd console{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&console, 1, 0) == 1 && (console.revents & POLLOUT)) {
    [[maybe_unused]] const ssize_t got = ::write(STDERR_FILENO, why.data(), why.size());
  }
  // The guard ends the ranks when it finds this process gone.
  ::_exit(!job_.own_program                          ? 128 + (number != 0 ? number : signal_.load())
          : kept.problem.empty() || !kept.responding ? kPreempted
                                                     : 1);
}

int Agent::finish(const State& state) {
  int code = state.code;
  if (code != 0) {
    const KeptMemory::Kept kept = keep_memory();
    if (code == kPreempted && !kept.problem.empty() && kept.responding) code = 1;
    if (!kept.responding && state.signal != 0)
      code = kPreempted;  // that the ranks could not save is no failure
  }
  if (kept_ && brought_back_ > 0 && memories_->steps().saved > brought_back_) kept_->forget();
  rendezvous_.say_goodbye();
  const bool hurries = state_.stop >= Stop::passed;
  drain_console(hurries ? kShortDrain : Duration::max());
  disk_.drain(hurries ? kShortDrain : kMostToKeep);
  if (code != 0 && state.nodes.empty() && state.signal == 0) throw base::CommError(536, state.why);
  return code;
}

}  // namespace lockstep::launch
