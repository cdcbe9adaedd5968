// Ranks that end or do not move: what the other nodes, the user and events.jsonl are told of them.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/file.h"
#include "lockstep/launch/agent_loop.h"
#include "lockstep/launch/run_events.h"

namespace lockstep::launch {

void Agent::tell_endings() {
  // A scheduler may signal the ranks beside us, so that they end before the leader has spread the word.
  const bool unheard = !asked_ && !caught_.empty();
  const bool theirs = asked_ && !job_.own_program;
  if (!unheard && !theirs && !forced_) {
    if (neighbours_) {
      for (const std::string& token : neighbours_->take_gone()) rendezvous_.say_lost(token);
    }
    std::vector<Failure> failures = ranks_.new_failures();
    if (asked_ || state_.save_only)
      std::erase_if(failures, [&](const Failure& one) { return ended_as_told(one); });
    if (!failures.empty()) say_failed(std::move(failures));
  }
  if (ranks_.all_ended() && !done_said_ && !failed_said_) {
    if (memories_) rendezvous_.set_memory(memories_->steps());
    const bool ours = forced_ && job_.own_program;
    rendezvous_.say_done(ours ? kPreempted : ranks_.worst_code(), ours);
    done_said_ = true;
  }
}

// Ranks of ours that were told to stop have saved and end with 75. Those that still started had nothing to
// save; that others could not reach them any more is no news.
bool Agent::ended_as_told(const Failure& failure) const {
  const auto ended_by = [&](int number) { return failure.code == 128 + number; };
  if (failure.code == kPreempted || ended_by(SIGINT) || ended_by(SIGTERM)) return true;
  if (!watcher_ || state_.save_only || failure.code == 2 || failure.code == 3) return false;
  watcher_->read(ranks_.all());
  const watch::RankFacts* facts = watcher_->facts_of(failure.rank);
  return facts != nullptr && facts->phase == watch::Phase::start && !ended_by(SIGKILL);
}

void Agent::say_failed(std::vector<Failure> failures) {
  if (watcher_) watcher_->read(ranks_.all());
  for (Failure& failure : failures) {
    judge_memory(failure);
    const watch::RankFacts* facts = watcher_ ? watcher_->facts_of(failure.rank) : nullptr;
    if (failure.hang || facts == nullptr || facts->last.empty()) continue;
    failure.ending += fmt::format(", in step {} at {}", facts->step + 1, facts->last);
  }
  if (memories_) rendezvous_.set_memory(memories_->steps());
  rendezvous_.say_failed(failures, watcher_ ? watcher_->step() : -1);
  failed_said_ = true;
}

// Another process may have taken the memory, so that one more start is worth it; a second end at the same
// step says that there will never be enough.
void Agent::judge_memory(Failure& failure) {
  if (!failure.out_of_memory || !job_.own_program) return;
  const int64_t step = watcher_ ? watcher_->step() : -1;
  failure.final = out_of_memory_at_ && step <= *out_of_memory_at_;
  if (failure.final)
    failure.ending += ", and not for the first time; `lockstep explain memory` says what takes it";
  out_of_memory_at_ = step;
}

void Agent::watch_for_hangs() {
  if (!watcher_ || failed_said_ || done_said_) return;
  const std::optional<watch::Verdict> verdict = watcher_->look(state_, ranks_.running());
  if (!verdict) return;
  if (!verdict->hangs()) {
    say(verdict->sentence);
    return add_event("slow", verdict->sentence, watcher_->step());
  }
  say_failed({failure_of(verdict->sentence, verdict->culprits.empty() ? -1 : verdict->culprits[0],
                         verdict->waited)});
}

Failure Agent::failure_of(const std::string& verdict, int rank, double waited) const {
  Failure failure;
  failure.hang = true, failure.ending = verdict, failure.host = base::host_name(), failure.rank = rank;
  failure.unix_micros = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count() -
                        static_cast<int64_t>(waited * 1e6);
  for (const NodePlace& place : state_.nodes) {
    if (place.first_rank > failure.rank) continue;
    failure.node = place.card.one_task_a_rank ? seat_of_task(state_, place).node : place.node;
    failure.host = place.card.host;
  }
  return failure;
}

// By a thread of its own: the run's disk may stand still.
void Agent::add_event(const std::string& name, const std::string& why, int64_t step) const {
  disk_.post(why.size(), [=, folder = job_.run_folder] { launch::add_event(folder, name, why, step); });
}

void Agent::say_who_cannot_end() {
  for (const RunningRank& one : ranks_.running()) {
    watch::Names unknown;
    const watch::RankFacts facts = watch::read_facts(job_.run_folder, one.rank, one.pid, 0, unknown);
    say(fmt::format("rank {} (process {}) was killed but does not end: {}", one.rank, one.pid,
                    facts.in_kernel
                        ? "it waits inside the kernel, for a disk or a file server that does not answer"
                    : facts.frozen ? "its cgroup is frozen"
                                   : "something outside holds it"));
  }
}

// In events.jsonl, by the launcher of the node that the run's folder is written on.
void Agent::record_failures(const State& state) const {
  const int64_t step = watcher_ ? watcher_->step() + 1 : -1;
  if (!state.failures.empty()) {
    const Failure& first = state.failures.front();
    const std::string who =
        first.rank >= 0 ? fmt::format("rank {}", first.rank) : fmt::format("node {}", first.node);
    add_event(first.hang ? "hang" : "rank_failed",
              first.hang ? first.ending : fmt::format("{} on {}: {}", who, first.host, first.ending), step);
  }
  if (!state.again) return;
  const int left = job_.options.max_restarts - state.restarts;
  add_event("restart",
            state.failures.empty()
                ? state.why
                : fmt::format("all ranks start again; {} restart{} left", left, left == 1 ? "" : "s"),
            step);
}

void Agent::report(const State& state) const {
  std::vector<Failure> failures = state.failures;
  const bool first_node = rendezvous_.place() && rendezvous_.place()->node == 0;
  if (first_node && state.phase == Phase::stopping) record_failures(state);
  bool refused_aloud = false;
  for (Failure& failure : failures) {
    failure.shown = failure.shown && first_node;  // rank 0's words are on one console only
    refused_aloud |= failure.shown && (failure.code == 2 || failure.code == 3);
  }
  if (refused_aloud) return;  // its sentence has said all there is to say
  if (!failures.empty()) {
    job_.say(failure_report(failures, state.again ? job_.options.max_restarts - state.restarts : -1));
  } else if (state.phase == Phase::stopping && !state.why.empty()) {
    say(state.why);
  }
}

}  // namespace lockstep::launch
