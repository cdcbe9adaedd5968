// Ranks that end or do not move: what the other nodes, the user and events.jsonl are told of them.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/file.h"
#include "lockstep/launch/agent_loop.h"
#include "lockstep/launch/run_events.h"

namespace lockstep::launch {

void Agent::tell_failed(std::vector<Failure> failures) {
  if (watcher_) watcher_->read(ranks_.all());
  for (Failure& failure : failures) {
    const watch::RankFacts* facts = watcher_ ? watcher_->facts_of(failure.rank) : nullptr;
    if (failure.hang || facts == nullptr || facts->last.empty()) continue;
    failure.ending += fmt::format(", in step {} at {}", facts->step + 1, facts->last);
  }
  if (memories_) rendezvous_.set_memory(memories_->steps());
  rendezvous_.say_failed(failures, watcher_ ? watcher_->step() : -1);
}

Failure Agent::failure_of(const TellHang& hang) const {
  Failure failure;
  failure.hang = true, failure.ending = hang.sentence, failure.host = base::host_name();
  failure.rank = hang.rank;
  failure.unix_micros = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count() -
                        static_cast<int64_t>(hang.waited * 1e6);
  if (const NodePlace* place = state_.leader.place_of_rank(hang.rank); place != nullptr) {
    failure.node = place->card.one_task_a_rank ? seat_of_task(state_.leader, *place).node : place->node;
    failure.host = place->card.host;
  }
  return failure;
}

// By a process of its own: the run's disk may stand still.
void Agent::add_event(const std::string& name, const std::string& why, int64_t step) const {
  const DiskWork add = [](const DiskCall& call) -> std::string {
    launch::add_event(call.words[0], call.words[1], call.words[2], std::stoll(call.words[3]));
    return "";
  };
  disk_.post(add, {job_.run_folder, name, why, std::to_string(step)});
}

void Agent::publish(std::vector<watch::RankFacts> facts) const {
  if (disk_.full()) return;
  const DiskWork write = [](const DiskCall& call) -> std::string {
    watch::write_nodes(call.words[0], call.words[1]);
    return "";
  };
  disk_.post(write, {job_.run_folder, watch::nodes_text(facts)});
}

void Agent::carry_out(const SayWhoCannotEnd&) {
  for (const RunningRank& one : ranks_.running()) {
    watch::Names unknown;
    const watch::RankFacts facts = watch::read_facts(job_.run_folder, one.rank, one.pid, 0, unknown);
    say(fmt::format("rank {} (process {}) was killed but does not exit: {}", one.rank, one.pid,
                    facts.in_kernel || !watch::blocked_threads(one.pid).empty()
                        ? "it is blocked in the kernel on a disk or file server that does not respond"
                    : facts.frozen ? "its cgroup is frozen"
                                   : "something else blocks it"));
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
                : fmt::format("restarting all ranks; {} restart{} left", left, left == 1 ? "" : "s"),
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
