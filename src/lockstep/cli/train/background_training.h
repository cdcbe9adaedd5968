// A `lockstep train` in the background that a test watches and disturbs.
#pragma once

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/patience.h"
#include "lockstep/base/ring.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/cli/testing.h"
#include "lockstep/launch/process/descendants.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::cli {

using nlohmann::json;

inline const std::string kTiny =
    "train model.layers=2 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=16 batch.slices=8 "
    "batch.strands=8 log.eval_every=0 log.eval_batches=2 run.device=cpu ";

// A run that takes too long has gone wrong; how long that is depends on the machine and what else it does. So
// tests wait as long as a run shows something new, and this is only for what outlives its test.
inline const std::string kAtMost = "timeout -k 5 1200 ";

// A run in the background, in a folder of its own.
class Training {
 public:
  Training(const std::string& folder, const std::string& name, const std::string& words,
           const std::string& before = "")
      : folder_(folder), name_(name), run_(folder + "/runs/" + name) {
    outcome_ = std::async(std::launch::async, [=] {
      return run_shell(folder, before + " echo $$ >" + name + ".pid; exec " + kAtMost + "$L " + kTiny +
                                   words + " run.name=" + name);
    });
  }
  ~Training() {
    if (outcome_.valid()) end();
  }
  std::vector<json> lines(const std::string& file) const {
    std::vector<json> found;
    std::ifstream in(run_ + "/" + file);
    for (std::string line; std::getline(in, line);) {
      json parsed = json::parse(line, nullptr, false);
      if (parsed.is_object()) found.push_back(std::move(parsed));
    }
    return found;
  }
  int64_t step() const {
    int64_t newest = 0;
    for (const json& line : lines("metrics.jsonl")) newest = std::max(newest, line.value("step", int64_t{0}));
    return newest;
  }
  std::string event(const std::string& name) const {  // the newest one's sentence
    std::string why;
    for (const json& line : lines("events.jsonl")) {
      if (line.value("event", "") == name) why = line.value("why", "");
    }
    return why;
  }
  std::vector<int64_t> starts() const {
    std::vector<int64_t> steps;
    for (const json& line : lines("events.jsonl")) {
      if (line.value("event", "") == "start") steps.push_back(line.value("step", int64_t{-1}));
    }
    return steps;
  }
  // False: it showed nothing new for a while, or ended.
  bool until(const std::function<bool()>& what) {
    base::Patience patience(std::chrono::seconds(30));
    while (!what()) {
      if (has_ended() || !patience.lasts(written())) return what();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  bool reaches(int64_t wanted) {
    return until([&] { return step() >= wanted; });
  }
  void stop(int signal) const { run_shell(folder_, fmt::format("kill -{} $(cat {}.pid)", signal, name_)); }
  pid_t rank(int number) const {
    return base::RingReader(run_ + "/trace/rank-" + std::to_string(number) + ".ring").pid();
  }
  // Processes of ranks, also of those that have left no mark yet: they are below the guard.
  std::vector<pid_t> ranks() const {
    for (const pid_t guard : launch::descendants_of(pid())) {
      if (name_of(guard) != "lockstep-guard") continue;
      std::vector<pid_t> found = launch::descendants_of(guard);
      std::erase_if(found, [](pid_t one) { return name_of(one) != "lockstep"; });
      return found;
    }
    return {};
  }
  // Its environment is a rank's: it is no longer the guard's copy of itself.
  static bool is_rank(pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/environ", process));
    for (std::string variable; std::getline(file, variable, '\0');) {
      if (variable.starts_with("RANK=")) return true;
    }
    return false;
  }
  static bool is_stopped(pid_t process) {
    std::string stat;
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", process)), stat);
    const size_t name_end = stat.rfind(") ");
    return name_end != std::string::npos && stat.substr(name_end + 2, 1) == "T";
  }
  static std::string name_of(pid_t process) {
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", process)), name);
    return name;
  }
  pid_t pid() const {  // of the program, below `timeout`
    pid_t shell = 0;
    std::ifstream(folder_ + "/" + name_ + ".pid") >> shell;
    for (const pid_t one : shell > 0 ? launch::descendants_of(shell) : std::vector<pid_t>{}) {
      if (name_of(one) == "lockstep") return one;
    }
    return 0;
  }
  void signal(int number) const { ::kill(pid(), number); }
  watch::Phase phase() const {  // of the first rank
    try {
      const auto marks = base::RingReader(watch::phase_path(run_, 0)).entries();
      return marks.empty() ? watch::Phase::start : static_cast<watch::Phase>(marks.back().stamp.op);
    } catch (const base::Error&) {
      return watch::Phase::start;
    }
  }
  int64_t newest_checkpoint() const {
    const std::vector<std::string> all = checkpoint::list(run_);
    return all.empty() ? 0 : std::atoll(all[0].substr(all[0].rfind("step-") + 5).c_str());
  }
  Outcome end() {
    until([&] { return has_ended(); });
    if (!has_ended())
      run_shell(folder_, "kill -TERM $(cat " + name_ + ".pid); sleep 5; kill -KILL $(cat " + name_ + ".pid)");
    return outcome_.get();
  }

 private:
  bool has_ended() const { return outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  int64_t written() const {
    int64_t bytes = 0;
    for (const char* file : {"/metrics.jsonl", "/events.jsonl"}) {
      std::error_code error;
      const auto size = std::filesystem::file_size(run_ + file, error);
      if (!error) bytes += static_cast<int64_t>(size);
    }
    return bytes;
  }
  std::string folder_, name_, run_;
  std::future<Outcome> outcome_;
};

// Of the last summary: a run that was stopped in between has told of that one too.
inline std::string hash_of(const Outcome& outcome) {
  const size_t at = outcome.output.rfind("\"params_hash\":\"");
  return at == std::string::npos ? "none: " + outcome.output : outcome.output.substr(at + 15, 32);
}

inline std::string undisturbed(const std::string& folder, int64_t steps) {
  return hash_of(
      run_shell(folder, "$L " + kTiny + fmt::format("run.steps={} run.name=undisturbed --json", steps)));
}

// Names of all files of a folder, with what tells whether one was replaced; those that a run writes on grow.
inline std::string files_of(const std::string& folder) {
  return run_shell(folder, "find . -name '*.tmp' -prune -o -type f -printf '%P %i\\n' | LC_ALL=C sort")
      .output;
}

}  // namespace lockstep::cli
