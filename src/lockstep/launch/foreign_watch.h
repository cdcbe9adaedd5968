// The launcher's eye on a program that is not ours: ranks that wait for one that does not come.
//
// What can be seen from outside: whether a rank uses its processor, is stopped, what the kernel says it waits
// in, its Python stack where py-spy is installed, and the dumps of PyTorch's flight recorder, which the
// launcher turns on (flight_variables). With --hang-timeout 60, a rank that has waited so long ends the round
// with a sentence that names the one that lags, instead of c10d's 10 or 30 minutes later.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/watcher.h"

namespace lockstep::launch {

// What is known of a rank, from outside.
struct ForeignRank {
  int rank = 0, pid = 0;
  bool stopped = false;  // SIGSTOP, a debugger
  double idle = 0;       // seconds without using the processor
  std::string waits_in;  // what the kernel says: "futex_wait_queue"; may be empty
  std::vector<std::string>
      stack;  // Python's, newest frame first: "all_reduce (torch/distributed/...py:2810)"
};

// Who holds up whom: a pure function. Nothing: nobody has waited for `seconds`.
std::optional<watch::Verdict> judge_foreign(const std::vector<ForeignRank>& ranks, double seconds,
                                            const std::string& from_flight_recorder = {}, int behind = -1);

class ForeignWatch {
 public:
  ForeignWatch(double hang_seconds, std::string folder)
      : hang_seconds_(hang_seconds), folder_(std::move(folder)) {}
  std::optional<watch::Verdict> look(const std::vector<RunningRank>& ranks);
  void forget() { seen_.clear(); }
  // Lines for a person: the stack of every rank, as far as it is known. Of the last verdict.
  const std::string& stacks() const { return stacks_; }
  bool has_stacks() const { return has_stacks_; }

 private:
  struct Seen {
    double cpu_seconds = 0;
    std::chrono::steady_clock::time_point at, busy_at;
  };
  ForeignRank rank_now(const RunningRank& one);
  void ask_recorders(const std::vector<RunningRank>& ranks) const;

  double hang_seconds_;
  std::string folder_;
  std::map<int, Seen> seen_;  // by process
  std::chrono::steady_clock::time_point looked_at_{};
  std::string stacks_;
  bool has_stacks_ = false;
};

// Turn the flight recorder on, with its dumps in `folder`, and Python's own report of fatal signals.
std::vector<std::pair<std::string, std::string>> flight_variables(const std::string& folder);

// "py-spy dump" as text to frames of the main thread.
std::vector<std::string> frames_of(const std::string& py_spy);

}  // namespace lockstep::launch
