// The launcher's eye on ranks that live but do not move: reads the marks of this node's ranks, lays them
// beside those of other nodes, and asks for a verdict.
//
// The launcher that leads judges; the others tell it, through the store, what their ranks are doing.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/store/store.h"
#include "lockstep/launch/rendezvous/round_state.h"
#include "lockstep/watch/nodes.h"
#include "lockstep/watch/verdict.h"

namespace lockstep::launch {

// A rank of this node that has not ended.
struct RunningRank {
  int rank = 0;
  pid_t pid = 0;
  int64_t started_micros = 0;
};

class Watcher {
 public:
  struct Options {
    std::string run_folder;
    watch::Budgets budgets;
    std::string token;     // of this launcher
    bool leads = true;     // it judges
    bool several = false;  // nodes
    // What the ranks of all nodes are doing, for somebody who looks; empty: nobody can.
    std::function<void(std::vector<watch::RankFacts> facts)> publish = {};
  };
  Watcher(Options options, std::unique_ptr<comm::Store> store);

  // Looks at most once a second; a verdict at most once a round for each kind.
  std::optional<watch::Verdict> look(const State& state, const std::vector<RunningRank>& ranks);
  void forget() {
    facts_.clear(), stopped_since_.clear(), blocked_.clear(), said_slow_ = false;
  }                               // a new round
  void hurry();                   // the run was told to end: who is stopped is not waited for
  double since_any_mark() const;  // seconds since a rank of this node left a mark, as of the last look
  // The furthest step that a rank of this node has begun in this round; -1: none.
  int64_t step() const;
  const watch::RankFacts* facts_of(int rank) const;
  // Reads the marks once more, of ranks that may have ended meanwhile.
  void read(const std::vector<RunningRank>& ranks);

 private:
  void note_stop(watch::RankFacts& facts);
  void note_blocked(watch::RankFacts& facts);
  void limit_to_presence(std::vector<watch::RankFacts>& facts) const;
  void tell(int round);
  bool someone_waits() const;
  std::vector<watch::RankFacts> hear(const State& state);

  Options options_;
  std::unique_ptr<comm::Store> store_;
  std::vector<watch::RankFacts> facts_;  // of this node
  std::map<int, watch::Names> names_;    // by rank
  watch::NodesAsked asked_;
  std::map<pid_t, std::chrono::steady_clock::time_point> stopped_since_;
  struct Blocked {
    int64_t runs = 0;  // of the thread, when it was first seen so
    std::chrono::steady_clock::time_point since;
  };
  std::map<pid_t, std::map<int, Blocked>> blocked_;  // of each rank, threads that stand in the kernel
  std::chrono::steady_clock::time_point looked_at_{};
  std::chrono::steady_clock::time_point left_at_{};  // the end of the last look: one may take long itself
  std::chrono::steady_clock::time_point back_at_{};  // this process did not run right before
  bool said_slow_ = false;
};

}  // namespace lockstep::launch
