// The launcher's loop, in three parts: agent.cc follows a round from its roll call to its end, agent_stop.cc
// is what a signal to stop leads to, agent_report.cc tells the other nodes and the user of ranks that end or
// do not move.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/agent.h"
#include "lockstep/launch/process/disk_writer.h"
#include "lockstep/launch/process/end_watch.h"
#include "lockstep/launch/process/local_ranks.h"
#include "lockstep/launch/process/signal_watch.h"
#include "lockstep/launch/rendezvous/kept_memory.h"
#include "lockstep/launch/rendezvous/rendezvous.h"
#include "lockstep/launch/rendezvous/replicas.h"
#include "lockstep/launch/schedulers/invitation.h"
#include "lockstep/launch/schedulers/metadata_watch.h"
#include "lockstep/launch/schedulers/neighbours.h"
#include "lockstep/run/shared/run_lock.h"

namespace lockstep::launch {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr Duration kDeaf{5000};  // a signal that was not taken for so long finds nobody at work
constexpr Duration kShortDrain{1000};

class Agent {
 public:
  explicit Agent(const AgentJob& job);
  int run();  // the run's exit code, when it is over

 private:
  int follow_rounds();
  using Clock = std::chrono::steady_clock;

  bool on_one_machine() const {
    return job_.options.one_node() || (job_.task && !job_.task->invitation.empty());
  }
  NodeCard card() const;
  int master_port() const;
  void tick(Duration most);
  void handle_signals();
  void pass_on(int number);
  void again(int number);
  bool ended_as_told(const Failure& failure) const;
  void watch_the_end();
  void end_now(int number);
  bool keep_memory() const;
  bool holds_unsaved() const;
  void add_event(const std::string& name, const std::string& why, int64_t step) const;
  bool step_does_not_fit();
  void judge_memory(Failure& failure);
  void watch_for_hangs();
  void say_failed(std::vector<Failure> failures);
  Failure failure_of(const std::string& verdict, int rank, double waited) const;
  void record_failures(const State& state) const;
  bool folder_stands() const;
  void check_folder() const;
  void bring_back_memory();
  void say_rescue() const;
  bool wait_for_round(int round);
  void watch(int round);
  void tell_endings();
  void end_ranks();
  void say_who_cannot_end();
  void drain_console(Duration most);
  void report(const State& state) const;
  int finish(const State& state);
  void say(const std::string& sentence) const { job_.say("lockstep: " + sentence + "\n"); }
  const State& look();

  // In this order: the guard is forked before there are threads, signals are held back before threads inherit
  // them.
  const AgentJob& job_;
  Guard guard_;
  SignalWatch signals_;
  Meeting meeting_;
  std::unique_ptr<run::RunLock> lock_;  // of the run's folder; the leader holds it for all nodes
  RankLogs logs_;
  mutable DiskWriter disk_;
  LocalRanks ranks_;
  Rendezvous rendezvous_;
  std::unique_ptr<InvitationFile> invitation_;
  std::unique_ptr<Neighbours> neighbours_;  // a machine's lowest of one task a rank
  // Our own ranks only.
  std::unique_ptr<RankMemories> memories_;
  std::unique_ptr<KeptMemory> kept_;
  std::unique_ptr<Watcher> watcher_;
  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<MetadataWatch> metadata_;
  const Duration beat_;  // between looks at the store

  Clock::time_point looked_at_{};
  State state_;
  std::deque<int> caught_;
  bool asked_ = false;   // to end: what ranks of another program do from now on is no failure
  bool forced_ = false;  // they were ended without asking: how is no failure either
  bool heard_ = false;   // a signal to stop came to this launcher itself
  int signalled_ = 0;    // passed on to the ranks
  int insisted_ = 0;     // Ctrl-C after it
  bool all_gone_ = false, done_said_ = false, failed_said_ = false;
  std::optional<Clock::time_point> insist_at_;
  std::optional<Clock::time_point> end_by_;  // when this launcher must be gone
  Clock::time_point signalled_at_{};
  bool had_folder_ = false;                  // the run's, seen while its ranks worked
  bool started_ = false;                     // ranks, once
  std::atomic<int> first_rank_{0};           // of this node, in the newest round
  std::optional<int64_t> out_of_memory_at_;  // the step of a rank that the kernel ended for want of memory
  int64_t brought_back_ = 0;                 // steps that an earlier launcher had kept
  std::unique_ptr<EndWatch> end_watch_;      // last: it uses the others
};

}  // namespace lockstep::launch
