// The ranks of this node in one round: started below the guard, their output passed on, their endings noted.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/launch/agent.h"
#include "lockstep/launch/failure.h"
#include "lockstep/launch/process/guard.h"
#include "lockstep/launch/process/output.h"
#include "lockstep/launch/process/rank_logs.h"
#include "lockstep/launch/process/rank_memory.h"
#include "lockstep/launch/rendezvous/round_state.h"
#include "lockstep/launch/rendezvous/run_store.h"
#include "lockstep/launch/watcher.h"
#include "lockstep/watch/launch_status.h"

namespace lockstep::launch {

class LocalRanks {
 public:
  LocalRanks(const AgentJob& job, const RunStore& run_store, const RankLogs& logs, Guard& guard,
             DiskWriter& disk);
  void use(const RankMemories* memories) { memories_ = memories; }  // borrowed

  void start(const State& state, const NodePlace& place);
  void note(const Ended& ended);
  void signal(int number);  // to those that still run
  bool all_ended() const;
  std::vector<RunningRank> running() const;
  std::vector<RunningRank> all() const;  // those that have ended too

  void add_sources(std::vector<pollfd>& sources) const;
  void pump();
  void finish_output();
  void tell(watch::LaunchStatus& status) const;                        // who they are and what they said last
  bool console_waits() const { return out_.waits() || err_.waits(); }  // for its reader

  // Ranks that ended in any other way than exit code 0, since the last call.
  std::vector<Failure> new_failures();
  int worst_code() const;  // 75 before others, 0 if all are well

 private:
  struct Rank {
    int rank = 0, local_rank = 0;
    pid_t pid = 0;
    int64_t started_micros = 0;
    std::string error_file;
    std::unique_ptr<RankStream> out, err;
    std::optional<Ended> ended;
    bool told = false;
  };
  comm::Seat seat_of(const State& state, const NodePlace& place, int local_rank) const;
  Failure failure_of(const Rank& rank) const;
  void start_one(const State& state, const NodePlace& place, int local_rank);

  const AgentJob& job_;
  const RunStore& run_store_;
  const RankLogs& logs_;
  Guard& guard_;
  DiskWriter& disk_;
  std::vector<std::string> environment_;
  int node_ = 0;
  int64_t kills_before_ = 0;  // for want of memory, when the ranks were started
  std::string host_;
  const RankMemories* memories_ = nullptr;
  const int64_t launched_millis_;
  Console out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  std::vector<Rank> ranks_;
};

}  // namespace lockstep::launch
