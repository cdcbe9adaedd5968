// A failure of a rank or of a node, and the report that names the first one.
//
// Which failure was first is decided by time: that in the rank's TORCHELASTIC_ERROR_FILE if it wrote one,
// else the moment its process ended. The report names rank, host and cause, and shows the last lines of its
// log, all within ten lines.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::launch {

constexpr int kPreempted = 75;  // the exit code of a rank that was told to stop and has saved

struct Failure {
  int rank = -1, local_rank = -1, node = 0;  // rank -1: the node as a whole
  std::string host;
  pid_t pid = 0;
  int code = 1;             // as a shell says it
  std::string ending;       // "exit code 1", "killed by SIGKILL (9)", "its launcher was lost"
  int64_t unix_micros = 0;  // decides which was first
  double seconds = 0;       // since its start
  std::string message;      // from the error file, one line
  std::string log;          // path; empty: none
  std::vector<std::string> last_lines;
  bool shown = false;          // its output was on the console already: no need to repeat it
  bool final = false;          // it would fail the same way again
  bool out_of_memory = false;  // the kernel ended it; for its own launcher
  bool hang = false;           // `ending` is a verdict: it lives, but others wait for it
};

nlohmann::json to_json(const Failure& failure);
Failure failure_from_json(const nlohmann::json& json);

// In a rank: leaves a word, in the file that its launcher named, that starting again is of no use. Nothing
// where there is no launcher.
void say_final(const std::string& message);

// Takes time and message from the file if the rank wrote one; anything unreadable in it is ignored.
void take_error_file(const std::string& path, Failure& failure);

void sort_by_time(std::vector<Failure>& failures);
// `failures` sorted by time and not empty; at most ten lines, each with its end.
std::string failure_report(const std::vector<Failure>& failures, int restarts_left);

}  // namespace lockstep::launch
