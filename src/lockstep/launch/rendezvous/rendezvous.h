// A node's side of the rendezvous: it introduces itself, follows what the leader publishes, and says what
// happens here.
//
//     Rendezvous rendezvous(options, rules, std::move(run_store), card, say);
//     rendezvous.join();
//     while (rendezvous.look().phase == Phase::rendezvous) ...
//
// Every call may throw CommError 534: the node that holds the store has gone.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/store/store.h"
#include "lockstep/launch/rendezvous/leader.h"
#include "lockstep/launch/rendezvous/round_state.h"
#include "lockstep/launch/rendezvous/run_store.h"
#include "lockstep/run/shared/snapshot_memory.h"

namespace lockstep::launch {

class Rendezvous {
 public:
  Rendezvous(const Options& options, LeaderRules rules, const RunStore& run_store, NodeCard card,
             Leader::Say say);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  void join(int master_port);  // ready for the next round, with this port if rank 0 is here
  // The leader's turn, if this node leads, and then the state. ConfigError 535: this node was refused.
  const State& look();
  const std::string& token() const { return card_.token; }
  const NodePlace* place() const { return state_.place_of(card_.token); }

  // What the memory of this node's ranks holds, told with every word from now on.
  void set_memory(run::SnapshotSteps steps) { memory_ = steps; }

  // `step`: how far the ranks here had come; -1: not known.
  void say_failed(const std::vector<Failure>& failures, int64_t step = -1);
  void say_lost(const std::string& token);  // of another launcher, that this one saw ending
  // `hurries`: there is no time left for another round.
  void say_done(int code, bool hurries = false);
  void say_stopped(bool hurries = false);
  // `drop`: the step in progress is not worth waiting for.
  void say_signal(int number, bool drop = false);
  void say_goodbye();  // and, if this node leads, waits until the others have heard that the run is over

 private:
  template <class Call>
  auto reach(Call call);
  void send(nlohmann::json message);

  std::string where_;  // the store's endpoint, for errors
  bool several_;
  NodeCard card_;
  State state_;
  run::SnapshotSteps memory_;
  std::string seen_;
  std::unique_ptr<comm::Store> store_;
  std::unique_ptr<Leader> leader_;
  std::jthread heart_;
};

}  // namespace lockstep::launch
