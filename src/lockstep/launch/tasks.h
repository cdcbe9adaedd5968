// One task a rank, as srun and mpirun start them: each node's lowest task runs the agent, the others join as
// they are.
//
// A joining task splits in two: the rank, and a small parent that waits for it, passes signals on, leaves
// nothing running, and tells the agent how it ended. The agent watches the parents through pidfds, so that a
// killed task is noticed at once.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/store.h"
#include "lockstep/comm/world.h"
#include "lockstep/launch/failure.h"
#include "lockstep/launch/options.h"

namespace lockstep::launch {

// Below the run's prefix: the queue on which tasks of a node introduce themselves, and how a rank ended.
std::string task_queue(const std::string& node);
std::string ending_key(int rank);

// The agent's side.
class JoinedTasks {
 public:
  // `node` is its number, or its host where it has none.
  JoinedTasks(int expected, std::string node, int node_number, std::unique_ptr<comm::Store> store);
  ~JoinedTasks();
  JoinedTasks(const JoinedTasks&) = delete;
  JoinedTasks& operator=(const JoinedTasks&) = delete;

  void look();  // who has come, who has ended
  void add_sources(std::vector<pollfd>& sources) const;
  std::vector<Failure> new_failures();
  void signal(int number);
  bool all_ended() const;  // all that were expected
  bool none_runs() const;  // of those that came
  int worst_code() const;

 private:
  struct Task {
    int rank = 0, local_rank = 0;
    pid_t pid = 0;
    int watch = -1;  // pidfd; -1: this kernel or container does not let us
    std::string host;
    std::chrono::steady_clock::time_point joined_at;
    bool ended = false, told = false;
    int status = 0;
    bool said = false;  // it said how it ended
  };
  int expected_, node_number_;
  std::string node_;
  std::unique_ptr<comm::Store> store_;
  std::vector<Task> tasks_;
};

// The task's side: introduces itself and splits. Returns in the rank with 0 and in the parent, when the rank
// has ended, with 1 + the exit code. `report` is called there with the wait status.
int split_task(Duration grace, const std::function<void(int status)>& report);

}  // namespace lockstep::launch
