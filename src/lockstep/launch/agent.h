// The launcher on one node: starts the ranks, watches them, and follows what the nodes have agreed on.
//
// run_agent() returns when the run is over, with its exit code, and leaves no process behind. The first
// failure decides: all ranks end within the grace, a report names the rank, and they are started again while
// the budget lasts. SIGTERM and SIGINT are passed on to the ranks; a second Ctrl-C ends them at once.
//
// For our own program a signal to stop ends with 75 in every state of a run, and with what is known saved: by
// the ranks if they work, by ranks that are started for nothing else if those were lost or do not move, and
// by the launcher itself (kept_memory.h) if they cannot, or not in time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/launch/options.h"

namespace lockstep::launch {

struct AgentJob {
  Options options;
  int ranks = 1;                     // on this node
  std::vector<std::string> command;  // of every rank
  bool own_program = false;          // it is Lockstep: ranks get the store and the secret
  std::string log_folder;            // own program: attempt-N/rank-R.log below it; else --log-dir decides
  std::function<void(const std::string& text)> say;  // whole lines for the console

  // Own program: where its ranks leave their marks, and what is known of its recipe.
  std::string run_folder;
  double hang_seconds = 0;    // run.hang_timeout; 0: auto
  int replicas = 0;           // checkpoint.replicas
  double notice_seconds = 0;  // from the warning to the end of this machine; 0: not known
  double end_seconds =
      0;  // within which a launcher that was told to stop has ended; 0: as long as ranks save
  bool from_scratch = false;  // what an earlier launcher of this run kept is not wanted

  bool scheduled = false;  // a scheduler started this task and may signal every process of it, ranks too

  // One task a rank: every task runs a launcher of its one rank, and counts as a node of one rank at the
  // rendezvous. Task 0's leads; the lowest of a machine speaks and watches for killed tasks.
  struct Task {
    int task = 0, local_task = 0;
    std::string machine;          // its node's number, or its host where it has none
    std::string rendezvous_file;  // all on one machine: the job's name, under which the others find the store
  };
  std::optional<Task> task;
};

int run_agent(const AgentJob& job);

}  // namespace lockstep::launch
