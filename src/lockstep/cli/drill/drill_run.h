// A training run that a drill disturbs: started as a user would start it, watched through what it writes.
//
// It is the same program with the user's own recipe, in a folder of its own. Nothing of it outlives this
// object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

class DrillRun {
 public:
  struct Options {
    std::string folder;              // the run's
    std::vector<std::string> words;  // after `lockstep train`
    int ranks = 1;
    double patience = 120;  // seconds; see until()
  };
  explicit DrillRun(Options options);  // starts it
  ~DrillRun();
  DrillRun(const DrillRun&) = delete;
  DrillRun& operator=(const DrillRun&) = delete;

  const std::string& folder() const { return options_.folder; }
  // Whether a stop signal reaches the program rather than ending it, as it does any process that has not
  // begun.
  bool hears_signals() const;
  pid_t pid() const { return pid_; }  // of the launcher, or of the only rank
  void start_again();                 // the same command once more, as its user or scheduler would
  int start_beside();                 // the same command while it runs: how that one ended

  // What stands in its files now.
  int64_t step() const;                           // of the newest line of metrics.jsonl; 0: none
  int64_t events(const std::string& name) const;  // how many there are in events.jsonl
  int64_t newest_start() const;                   // the step that the newest `start` event goes on from
  std::string newest_why(const std::string& name) const;
  std::string params_hash() const;  // of the finished run; empty: not finished
  bool saving() const;              // the first rank is

  // Processes of its ranks that live now; those of `rank` by its marks, 0 if it has none.
  std::vector<pid_t> rank_processes() const;
  pid_t process_of(int rank) const;

  std::optional<int> code();  // its exit code, once it has ended; 128 + signal
  // Looks every millisecond until `what` holds. False: the run ended first, or has written nothing new for as
  // long as patience lasts (base::Patience); ten times as long while its ranks get processor time, since on a
  // busy machine they may only be slow.
  bool until(const std::function<bool()>& what);
  // Where its metrics.jsonl differs from that of the run in `folder`: a step that is missing, or twice there,
  // or has another loss. Empty: nowhere.
  std::string metrics_differ_from(const std::string& folder) const;
  int finish();                    // waits for the end; -1: it did not end, and was killed
  std::string last_lines() const;  // of its console

 private:
  void start();
  pid_t run_command(const std::string& console) const;
  int64_t written() const;         // bytes of what it writes as it goes on
  int64_t processor_time() const;  // of its ranks, in ticks
  Options options_;
  pid_t pid_ = 0;
  std::optional<int> code_;
};

}  // namespace lockstep::cli
