// What the agent does where a transition says so.
#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/launch/agent_loop.h"
#include "lockstep/launch/process/frameworks.h"

namespace lockstep::launch {

void Agent::carry_out(const StartRanks& start) {
  const State& state = state_.leader;
  logs_.set_first_attempt(state.first_attempt);
  first_rank_ = rendezvous_.place()->first_rank;
  if (watcher_) watcher_->forget();
  if (foreign_) foreign_->forget();
  if (neighbours_) neighbours_->begin_round(state);
  if (replicas_) replicas_->begin_round(state, *rendezvous_.place());
  check_folder();
  if (start.first) bring_back_memory();
  if (state.save_only) say_rescue();
  begin_framework(state);
  ranks_.start(state, *rendezvous_.place());
}

// A round's ranks meet in a store that knows nothing of the round before.
void Agent::begin_framework(const State& state) {
  const Framework* framework = find_framework(job_.options.framework);
  if (framework == nullptr || !framework->own_store || rendezvous_.place()->node != 0) return;
  framework_store_.reset();
  framework_store_ = std::make_unique<HorovodStore>(rendezvous_.place()->card.address, state.master_port);
}

bool Agent::folder_stands() const {
  return !job_.run_folder.empty() && ::access((job_.run_folder + "/config.toml").c_str(), F_OK) == 0;
}

// Fresh ranks would make it again, on the disk below a mount that has gone.
void Agent::check_folder() const {
  if (!had_folder_ || folder_stands()) return;
  throw base::IoError(816, fmt::format("{} is gone: it was unmounted, moved or removed; restore it and run "
                                       "the same command again to resume from its newest checkpoint",
                                       job_.run_folder));
}

void Agent::carry_out(const EndRanks& end) {
  nothing_runs_ = false;
  guard_.end_all(end.grace);
}

void Agent::carry_out(const ReportRound&) {
  drain_console(kShortDrain);  // what a rank said stands before what is said of it
  report(state_.leader);
}

// Until the console's reader has taken all, or somebody wants the launcher to end.
void Agent::drain_console(Duration most) {
  const Clock::time_point begin = Clock::now();
  const auto waited = [&] { return std::chrono::duration_cast<Duration>(Clock::now() - begin); };
  while (ranks_.console_waits() && caught_.empty() && waited() < most) tick(Duration(50));
}

void Agent::carry_out(const AnnounceSlow& slow) {
  say(slow.sentence);
  add_event("slow", slow.sentence, watcher_ ? watcher_->step() : -1);
}

void Agent::carry_out(const HurryVerdicts&) {
  if (watcher_) watcher_->hurry();
}

void Agent::carry_out(const TellDone& tell) {
  if (memories_) rendezvous_.set_memory(memories_->steps());
  rendezvous_.say_done(tell.code, tell.hurries);
}

}  // namespace lockstep::launch
