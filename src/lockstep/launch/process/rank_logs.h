// Where the output of ranks goes: the rules of torchrun for any program, and those of a run folder for our
// own.
#pragma once

#include <string>

#include "lockstep/launch/options.h"
#include "lockstep/launch/process/output.h"

namespace lockstep::launch {

std::string run_log(const std::string& run_logs, int attempt, int rank);  // RUN_LOGS/attempt-N/rank-R.log

struct LogSeat {
  int round = 0, rank = 0, local_rank = 0, world = 1;
};

class RankLogs {
 public:
  // With `run_logs`: RUN_LOGS/attempt-N/rank-R.log with both streams; rank 0 is on the console too, as if it
  // were alone. Else torchrun's:
  // LOG_DIR/RUNID_random/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}. Without --log-dir the
  // folder is a temporary one, which is removed at the end unless it holds logs.
  RankLogs(const Options& options, std::string run_logs);
  ~RankLogs();
  RankLogs(const RankLogs&) = delete;
  RankLogs& operator=(const RankLogs&) = delete;

  StreamPlans plans(const LogSeat& seat) const;
  std::string error_file(const LogSeat& seat) const;  // in a folder that is there
  const std::string& root() const { return root_; }   // the folder of the above
  bool kept() const { return keep_; }                 // it stays when the launcher ends
  void set_first_attempt(int number) { first_attempt_ = number; }
  static int next_attempt(const std::string& run_logs);  // 1 + the highest N of attempt-N in it

 private:
  std::string folder_of(const LogSeat& seat) const;
  std::string prefix_of(const LogSeat& seat) const;

  Options options_;
  std::string run_logs_;  // empty: torchrun's rules
  std::string root_;      // of error files, and of logs by torchrun's rules
  bool keep_ = false;
  int first_attempt_ = 0;
};

}  // namespace lockstep::launch
