// The launcher's loop: gathers what happens, asks agent_machine.h what follows, and carries that out.
//
// agent.cc gathers the events, agent_actions.cc carries out the actions, agent_report.cc finds the words for
// ranks that end or do not move, and agent_memory.cc sees to what ranks leave in the launcher's memory.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/agent.h"
#include "lockstep/launch/agent_machine.h"
#include "lockstep/launch/foreign_watch.h"
#include "lockstep/launch/process/disk_process.h"
#include "lockstep/launch/process/disk_writer.h"
#include "lockstep/launch/process/end_watch.h"
#include "lockstep/launch/process/horovod_store.h"
#include "lockstep/launch/process/local_ranks.h"
#include "lockstep/launch/process/signal_watch.h"
#include "lockstep/launch/rendezvous/kept_memory.h"
#include "lockstep/launch/rendezvous/rendezvous.h"
#include "lockstep/launch/rendezvous/replicas.h"
#include "lockstep/launch/schedulers/metadata_watch.h"
#include "lockstep/launch/schedulers/neighbours.h"
#include "lockstep/launch/schedulers/rendezvous_file.h"
#include "lockstep/run/shared/run_lock.h"
#include "lockstep/watch/launch_status.h"

namespace lockstep::launch {

constexpr Duration kShortDrain{1000};

class Agent {
 public:
  explicit Agent(const AgentJob& job);
  int run();  // the run's exit code, when it is over

 private:
  int follow_rounds();
  using Clock = std::chrono::steady_clock;

  bool on_one_machine() const {
    return job_.options.one_node() || (job_.task && !job_.task->rendezvous_file.empty());
  }
  NodeCard card() const;
  int master_port() const;

  // Events.
  void tick(Duration most);
  void gather();
  void take(AgentEvent event) { apply(next(rules_, std::move(state_), std::move(event), Clock::now())); }
  void apply(Transition made);
  Needs needs() const { return launch::needs(rules_, state_, beat_); }
  RanksEnded endings();
  std::optional<VerdictReached> verdict();
  void tell_status();
  void publish(std::vector<watch::RankFacts> facts) const;
  void show_stacks();
  StatePublished look();
  SignalCaught next_signal();
  bool step_fits();
  std::optional<Progress> progress() const;

  // Actions.
  void carry_out(const JoinRound&) { rendezvous_.join(master_port()); }
  void carry_out(const StartRanks& start);
  void carry_out(const SignalRanks& signal) { ranks_.signal(signal.number); }
  void carry_out(const EndRanks& end);
  void carry_out(const LeaveRanksBehind&) { guard_.leave_behind(); }
  void carry_out(const ReportRound&);
  void carry_out(const TakeLastOutput&) { ranks_.finish_output(); }
  void carry_out(const SayWhoCannotEnd&);
  void carry_out(const Announce& announce) { say(announce.sentence); }
  void carry_out(const AnnounceSlow& slow);
  void carry_out(const HurryVerdicts&);
  void carry_out(const EndBy& end) { end_watch_->end_by(end.when); }
  void carry_out(const TellSignal& tell) { rendezvous_.say_signal(tell.number, tell.drop); }
  void carry_out(const TellLost& tell) { rendezvous_.say_lost(tell.token); }
  void carry_out(const TellFailed& tell) { tell_failed(tell.failures); }
  void carry_out(const TellHang& tell) { tell_failed({failure_of(tell)}); }
  void carry_out(const TellDone& tell);
  void carry_out(const TellStopped& tell) { rendezvous_.say_stopped(tell.hurries); }

  void tell_failed(std::vector<Failure> failures);
  Failure failure_of(const TellHang& hang) const;
  void report(const State& state) const;
  void record_failures(const State& state) const;
  void add_event(const std::string& name, const std::string& why, int64_t step) const;
  bool folder_stands() const;
  void check_folder() const;
  void bring_back_memory();
  void say_rescue() const;
  void begin_framework(const State& state);
  KeptMemory::Kept keep_within(Duration most) const;
  KeptMemory::Kept keep_memory() const;
  void pause();
  bool holds_unsaved() const;
  void drain_console(Duration most);
  void end_now(int number);
  int finish(const State& state);
  void say(const std::string& sentence) const { job_.say("lockstep: " + sentence + "\n"); }

  // In this order: guard and disk process are forked before there are threads, signals are held back before
  // threads inherit them.
  const AgentJob& job_;
  const AgentRules rules_;
  const std::shared_ptr<DiskProcess> disk_process_;  // before the guard, whose business it is not
  Guard guard_;
  SignalWatch signals_;
  RunStore run_store_;
  std::unique_ptr<run::RunLock> lock_;  // of the run's folder; the leader holds it for all nodes
  RankLogs logs_;
  mutable DiskWriter disk_;
  LocalRanks ranks_;
  Rendezvous rendezvous_;
  std::unique_ptr<RendezvousFile> rendezvous_file_;
  std::unique_ptr<Neighbours> neighbours_;           // a machine's lowest of one task a rank
  std::unique_ptr<ForeignWatch> foreign_;            // of another program, with --hang-timeout
  std::unique_ptr<watch::LaunchStatusFile> status_;  // of another program
  std::unique_ptr<HorovodStore> framework_store_;    // of another program, where its framework wants one
  // Our own ranks only.
  std::unique_ptr<RankMemories> memories_;
  std::unique_ptr<KeptMemory> kept_;
  std::unique_ptr<Watcher> watcher_;
  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<MetadataWatch> metadata_;
  const Duration beat_;  // between looks at the store

  AgentState state_;
  bool stage_changed_ = false;  // since the last wait
  Clock::time_point looked_at_{};
  std::deque<int> caught_;          // signals
  bool nothing_runs_ = false;       // said the guard
  bool had_folder_ = false;         // the run's, seen while its ranks worked
  int64_t brought_back_ = 0;        // steps that an earlier launcher had kept
  std::atomic<int> first_rank_{0};  // of this node, in the newest round
  // Of state_, for the thread of end_now().
  std::atomic<int> signal_{0};
  std::atomic<int64_t> saved_{0};
  std::unique_ptr<EndWatch> end_watch_;  // last: it uses the others
};

}  // namespace lockstep::launch
