// Copies of ranks' snapshots on another node (checkpoint.replicas = 1), so that a lost node costs no more
// than a lost rank.
//
// Each launcher opens a store of its own on the node's address, with the run's secret; the launcher of the
// node before it puts its ranks' shares there, in pieces, as soon as they are taken. A launcher that comes
// new to a run fetches what its ranks' predecessors left, before it starts them. Where every rank holds
// everything nothing is sent: the others have it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/store/secret.h"
#include "lockstep/comm/store/store.h"
#include "lockstep/comm/store/store_server.h"
#include "lockstep/launch/process/rank_memory.h"
#include "lockstep/launch/rendezvous/round_state.h"
#include "lockstep/run/shared/snapshot_memory.h"

namespace lockstep::launch {

// A generation in a store, in pieces below `prefix`; it counts once its last key is set.
void put_copy(comm::Store& store, const std::string& prefix, const run::SnapshotCopy& copy);
run::SnapshotCopy get_copy(comm::Store& store, const std::string& prefix);  // empty: none, or not whole

class Replicas {
 public:
  struct Options {
    std::string address;  // of this node
    std::string token;    // of this launcher
    comm::Secret secret;
    bool tls = false;
    std::function<void(const std::string&)> say;
  };
  // `store` is the launchers'; the memories are borrowed.
  Replicas(Options options, std::unique_ptr<comm::Store> store, const RankMemories& memories);

  // Before ranks are started: brings back what others keep of this node's ranks, and from then on sends
  // theirs to the next node.
  void begin_round(const State& state, const NodePlace& place);

 private:
  struct Task {  // what the sender works on
    int first_rank = 0;
    std::string peer;                // token of the next node; empty: none
    std::vector<int64_t> committed;  // that the peer has, by local rank
  };
  void fetch(const NodePlace& place);
  void send(const std::stop_token& stop, comm::Store& store);
  std::unique_ptr<comm::Store> connect(const std::string& endpoint) const;

  Options options_;
  std::unique_ptr<comm::Store> store_;
  const RankMemories& memories_;
  comm::StoreServer server_;
  std::mutex mutex_;
  std::shared_ptr<Task> task_;  // the newest; the sender works on one at a time
  std::jthread sender_;         // last: it uses the others
};

}  // namespace lockstep::launch
