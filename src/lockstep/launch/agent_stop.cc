// What a signal to stop leads to, in every state of a run; and what an earlier launcher kept.
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
constexpr double kStill = 30;           // seconds without a mark, after a signal, until ranks count as frozen

bool stops(int number) {
  return std::find(std::begin(kStopSignals), std::end(kStopSignals), number) != std::end(kStopSignals);
}

}  // namespace

// Once, before the first ranks of this launcher.
void Agent::bring_back_memory() {
  if (!kept_ || started_) return;
  started_ = true;
  if (job_.from_scratch) return kept_->forget();
  brought_back_ = kept_->bring_back(first_rank_);
}

void Agent::say_rescue() const {
  if (rendezvous_.place()->node != 0) return;
  const std::string what = "ranks start once more, only to save what their memory holds";
  say(what);
  add_event("restart", state_.why.empty() ? what : state_.why + "; " + what, memories_->steps().newest);
}

bool Agent::holds_unsaved() const {
  if (!memories_) return false;
  const run::SnapshotSteps steps = memories_->steps();
  return steps.newest > std::max(steps.saved, state_.saved);
}

// Steps that no checkpoint has, and nobody is left to save: the launcher keeps them itself. False: it could
// not.
bool Agent::keep_memory() const {
  if (!job_.own_program || !holds_unsaved()) return true;
  const int64_t step = memories_->steps().newest;
  const Duration most =
      end_by_ ? std::max(kDeaf, std::chrono::duration_cast<Duration>(*end_by_ - Clock::now())) : kMostToKeep;
  const std::string problem = kept_->keep(first_rank_, most);
  say(problem.empty()
          ? fmt::format("step {} is in no checkpoint and was kept in {}/snapshots; the same command "
                        "goes on from there",
                        step, job_.run_folder)
          : fmt::format("step {} is in no checkpoint and could not be kept: {}", step, problem));
  return problem.empty();
}

// The first is passed on, here and through the leader on every node; a second Ctrl-C does not wait any
// longer.
void Agent::handle_signals() {
  while (!caught_.empty()) {
    const int number = caught_.front();
    caught_.pop_front();
    if (stops(number) || (job_.own_program && number == SIGUSR1)) {
      pass_on(number == SIGUSR1 ? SIGTERM : number);
    } else {
      ranks_.signal(number);  // a word between the user and the program
    }
  }
  if (state_.signal == 0 || signalled_ != 0) return;
  signalled_ = state_.signal, asked_ = true, signalled_at_ = Clock::now();
  if (watcher_) watcher_->hurry();
  if (job_.end_seconds > 0) {
    const Duration all(static_cast<int64_t>(job_.end_seconds * 1000));
    end_by_ = signalled_at_ + all - std::min(kDeaf, all / 5);  // the rest is for keeping what is left
    end_watch_->end_by(signalled_at_ + all);
  }
  // These ranks end by themselves.
  if (state_.save_only || state_.phase != Phase::running) return;
  // Of a dropped terminal, or of a scheduler that has signalled the rank itself: a second SIGINT would end it
  // without saving.
  const bool as_term = job_.own_program && (signalled_ != SIGINT || job_.scheduled);
  ranks_.signal(as_term ? SIGTERM : signalled_);
  // Our own ranks finish their step and save, however long that takes.
  if (!job_.own_program) insist_at_ = Clock::now() + job_.options.grace;
}

// A scheduler signals every node, each a moment later than the last: its first word here may come after the
// leader's, and is no second one.
void Agent::pass_on(int number) {
  const bool repeats = !job_.scheduled || heard_;
  heard_ = true;
  if (signalled_ != 0) {
    if (repeats && (number == SIGINT || number == SIGTERM)) again(number);
    return;
  }
  rendezvous_.say_signal(number, number == SIGTERM && step_does_not_fit());
  asked_ = true;
}

// Our own ranks are saving by now, and a second word must not break that; who insists with Ctrl-C is heard by
// the ranks first, which know whether they save, and then ends them.
void Agent::again(int number) {
  const bool ends = !job_.own_program || (number == SIGINT && ++insisted_ >= 2);
  if (ends) {
    say(fmt::format("{} again: ending the ranks now", signal_name(number)));
    forced_ = true;
    guard_.end_all(Duration(0));
  } else if (number == SIGINT) {
    ranks_.signal(SIGINT);
  }
}

// Whether stopping and a save, as measured in this run, take longer than this machine still lives; and
// whether there is memory to save from instead.
bool Agent::step_does_not_fit() {
  if (!watcher_ || job_.notice_seconds <= 0 || state_.phase != Phase::running) return false;
  watcher_->read(ranks_.running());
  for (const RunningRank& one : ranks_.running()) {
    const watch::RankFacts* facts = watcher_->facts_of(one.rank);
    if (facts == nullptr || facts->phase != watch::Phase::train || !memories_->used()) return false;
    if (run::kStepsToStop * facts->usual_step + facts->usual_save <= job_.notice_seconds) return false;
  }
  return true;
}

// Our own ranks, told to stop: as long as one of them moves they are waited for, until this launcher's time
// is over.
void Agent::watch_the_end() {
  if (!job_.own_program || signalled_ == 0 || failed_said_ || done_said_ || forced_) return;
  const auto waited = std::chrono::duration<double>(Clock::now() - signalled_at_).count();
  if (end_by_ && Clock::now() >= *end_by_) {
    say(fmt::format("the ranks did not save within {:.0f} s of {}: ending them now", job_.end_seconds,
                    signal_name(signalled_)));
    forced_ = true;
    return guard_.end_all(Duration(0));
  }
  if (state_.save_only) return;  // these do nothing else; if they hang, there will be a verdict
  // Who has left no mark yet has nothing to save: it ends at once, unless it cannot.
  const std::vector<RunningRank> running = ranks_.running();
  if (!watcher_ || running.empty()) return;
  bool all_start = true, busy = false;
  for (const RunningRank& one : running) {
    const watch::RankFacts* facts = watcher_->facts_of(one.rank);
    if (facts == nullptr) continue;
    all_start &= facts->phase == watch::Phase::start;
    busy |= facts->phase == watch::Phase::save || facts->phase == watch::Phase::evaluate;
  }
  const double grace = static_cast<double>(job_.options.grace.count()) / 1000;
  const double most = all_start ? grace : kStill;
  const double still = all_start ? waited : std::min(waited, watcher_->since_any_mark());
  if (busy || still < most) return;
  say_failed({failure_of(fmt::format("rank {} has not moved for {:.0f} s since {}", running[0].rank, still,
                                     signal_name(signalled_)),
                         running[0].rank, still)});
}

// Called by a thread of its own while the launcher itself does not get to it: nothing here may wait for
// anybody.
void Agent::end_now(int number) {
  const char* const why = number != 0
                              ? "lockstep: the launcher does not come to hear the signal, and ends at once\n"
                              : "lockstep: the launcher's time is over, and it ends at once\n";
  std::string problem;
  const bool keeps = job_.own_program && holds_unsaved();
  if (keeps) problem = kept_->keep(first_rank_, kDeaf);
  pollfd console{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&console, 1, 0) == 1 && (console.revents & POLLOUT)) {
    [[maybe_unused]] const ssize_t got = ::write(STDERR_FILENO, why, std::strlen(why));
  }
  // The guard ends the ranks when it finds this process gone.
  ::_exit(!job_.own_program           ? 128 + (number != 0 ? number : signalled_)
          : keeps && !problem.empty() ? 1
                                      : kPreempted);
}

int Agent::finish(const State& state) {
  int code = state.code;
  if (code != 0 && !keep_memory() && code == kPreempted) code = 1;
  if (kept_ && brought_back_ > 0 && memories_->steps().saved > brought_back_) kept_->forget();
  rendezvous_.say_goodbye();
  drain_console(signalled_ ? kShortDrain : Duration::max());
  disk_.drain(signalled_ ? kShortDrain : kMostToKeep);
  if (code != 0 && state.nodes.empty() && state.signal == 0) throw base::CommError(536, state.why);
  return code;
}

}  // namespace lockstep::launch
