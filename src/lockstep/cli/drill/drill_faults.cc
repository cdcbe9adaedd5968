#include "lockstep/cli/drill/drill_faults.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/cli/drill/drill_places.h"

namespace lockstep::cli {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

DrillRun::Options options_of(const Drill& drill, const Fault& fault) {
  DrillRun::Options options;
  options.folder = drill.folder + "/" + fault.name;
  options.words = drill.words;
  options.words.insert(options.words.end(), fault.keys.begin(), fault.keys.end());
  options.words.push_back(fmt::format("run.steps={}", drill.steps));
  options.words.push_back(
      fmt::format("checkpoint.every={}", std::max<int64_t>(1, drill.steps / (12 + 3 * drill.times))));
  options.ranks = drill.ranks, options.patience = drill.patience;
  return options;
}

// Follows a run from a fault until it has done more than ever before.
class Follow {
 public:
  Follow(DrillRun& run, std::vector<std::string> tells) : run_(run), tells_(std::move(tells)) {}
  void begin() { before_ = run_.step(), told_ = count(), at_ = Clock::now(), begun_ = true; }  // right before
  // That the run was at when the fault came, or is at now, where none has come.
  int64_t step() const { return begun_ ? before_ : run_.step(); }

  // False: the run did not come back; its console says more.
  bool recovered(Struck& struck) {
    const bool told = run_.until([&] {
      if (run_.code() && *run_.code() != 0) return true;  // gone: noticed by whoever started it
      return count() > told_;
    });
    if (!told) return false;
    struck.noticed = since(at_);
    before_ = std::max(before_, run_.step());  // steps that were done meanwhile
    // A launcher starts its ranks again by itself; a run that has saved is its user's.
    if (run_.code() && *run_.code() == 75) run_.start_again();
    const bool again = run_.until([&] { return run_.step() > before_; });
    struck.recovered = since(at_);
    struck.lost = std::max<int64_t>(0, before_ - run_.newest_start());
    return again;
  }

 private:
  int64_t count() const {
    int64_t all = 0;
    for (const std::string& name : tells_) all += run_.events(name);
    return all;
  }
  DrillRun& run_;
  std::vector<std::string> tells_;
  int64_t before_ = 0, told_ = 0;
  bool begun_ = false;
  Clock::time_point at_ = Clock::now();
};

// Ends the run in peace and compares.
DrillResult& conclude(const Drill& drill, DrillRun& run, DrillResult& result) {
  if (!result.problem.empty()) {
    result.problem += "; its last output:\n" + run.last_lines();
    return result;
  }
  const int code = run.finish();
  result.params_hash = run.params_hash();
  result.problem = code != 0 ? fmt::format("it exited with code {}:\n{}", code, run.last_lines())
                             : run.metrics_differ_from(drill.undisturbed);
  return result;
}

// Waits until the run has done some more steps, not always as many, and leaves enough of them for `strikes`.
bool some_steps_later(Drill& drill, DrillRun& run, int64_t strikes = 1) {
  const int64_t from = run.step(), left = drill.steps - from;
  const int64_t most = std::min<int64_t>(40, left / (strikes + 1));
  const int64_t target = from + drill.pick(2, std::max<int64_t>(3, most));
  return run.until([&] { return run.step() >= target && run.process_of(0) != 0; });
}

pid_t random_rank(Drill& drill, const DrillRun& run) {
  return run.process_of(static_cast<int>(drill.pick(0, drill.ranks - 1)));
}

// Empty: done; else why not.
std::string send_signal(pid_t process, int number) {
  return process > 0 && ::kill(process, number) == 0 ? "" : "the target rank had already exited";
}

// `strike` disturbs the run and says why it could not, or nothing.
template <class Strike>
DrillResult strike_again_and_again(Drill& drill, const Fault& fault, std::vector<std::string> tells,
                                   Strike strike) {
  DrillResult result;
  DrillRun run(options_of(drill, fault));
  // On a busy machine it may be done before the last strike, or end while that one is on its way: then it was
  // struck less often, and is no failure. A run that was told early and went on to its end is one.
  const auto done = [&](int64_t struck_at) { return run.code() == 0 && struck_at * 10 >= drill.steps * 9; };
  for (int64_t k = 0; k < drill.times && result.problem.empty(); ++k) {
    if (!some_steps_later(drill, run, drill.times - k)) {
      if (!done(run.step()))
        result.problem = fmt::format("the run ended after {} of {} faults", k, drill.times);
      break;
    }
    Follow follow(run, tells);
    result.problem = strike(run, follow);
    if (!result.problem.empty()) {
      if (done(follow.step())) result.problem.clear();
      break;
    }
    if (!follow.recovered(result.struck.emplace_back())) result.problem = "it did not recover";
  }
  if (result.problem.empty() && result.struck.empty())
    result.skipped = "the run was done before anything could happen to it; give it more steps (--steps)";
  return conclude(drill, run, result);
}

DrillResult kill_rank(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"rank_failed"}, [&](DrillRun& run, Follow& follow) {
    const pid_t rank = random_rank(drill, run);
    follow.begin();
    return send_signal(rank, SIGKILL);
  });
}

DrillResult kill_while_saving(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"rank_failed"}, [&](DrillRun& run, Follow& follow) {
    if (!run.until([&] { return run.saving(); })) return std::string("it did not save");
    std::this_thread::sleep_for(std::chrono::microseconds(drill.pick(0, 3000)));
    const pid_t rank = random_rank(drill, run);
    follow.begin();
    return send_signal(rank, SIGKILL);
  });
}

// One rank is killed, and while new ones are coming up another of them is lost, by the signal.
template <int number>
DrillResult lose_while_recovering(Drill& drill, const Fault& fault) {
  return strike_again_and_again(
      drill, fault, {number == SIGSTOP ? "hang" : "rank_failed"}, [&](DrillRun& run, Follow& follow) {
        const std::vector<pid_t> old = run.rank_processes();
        const pid_t rank = random_rank(drill, run);
        follow.begin();
        if (std::string why = send_signal(rank, SIGKILL); !why.empty()) return why;
        std::vector<pid_t> fresh;
        const bool came = run.until([&] {
          fresh = run.rank_processes();
          std::erase_if(fresh,
                        [&](pid_t one) { return std::find(old.begin(), old.end(), one) != old.end(); });
          return static_cast<int>(fresh.size()) == drill.ranks;
        });
        if (!came) return std::string("no new ranks started");
        std::this_thread::sleep_for(std::chrono::milliseconds(drill.pick(0, 400)));
        ::kill(fresh[static_cast<size_t>(drill.pick(0, drill.ranks - 1))], number);
        return std::string();
      });
}

// Told to stop, whatever it is at, it ends with 75 and the same command goes on. Empty: so it was.
std::string tell_to_stop(DrillRun& run, int number) {
  ::kill(run.pid(), number);
  if (!run.until([&] { return run.code().has_value(); })) return "it did not exit";
  return *run.code() == 75 ? "" : fmt::format("it exited with code {} instead of 75", *run.code());
}

void wait_up_to(Drill& drill, int64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(drill.pick(0, milliseconds)));
}

template <int number>
DrillResult terminate(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"preempted"}, [&](DrillRun& run, Follow& follow) {
    follow.begin();
    return tell_to_stop(run, number);
  });
}

DrillResult terminate_while_saving(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"preempted"}, [&](DrillRun& run, Follow& follow) {
    if (!run.until([&] { return run.saving(); })) return std::string("it did not save");
    std::this_thread::sleep_for(std::chrono::microseconds(drill.pick(0, 3000)));
    follow.begin();
    return tell_to_stop(run, SIGTERM);
  });
}

// A rank is lost, by the signal, and the run told to stop before, while or after it comes back.
template <int number>
DrillResult lose_and_terminate(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"preempted"}, [&](DrillRun& run, Follow& follow) {
    const pid_t rank = random_rank(drill, run);
    follow.begin();
    if (std::string why = send_signal(rank, number); !why.empty()) return why;
    wait_up_to(drill, 1000);
    return tell_to_stop(run, SIGTERM);
  });
}

// Told to stop, and while it does so a rank is killed.
DrillResult terminate_and_lose(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"preempted"}, [&](DrillRun& run, Follow& follow) {
    const pid_t rank = random_rank(drill, run);
    follow.begin();
    ::kill(run.pid(), SIGTERM);
    wait_up_to(drill, 100);
    ::kill(rank, SIGKILL);
    return tell_to_stop(run, SIGTERM);
  });
}

// Two different signals that both mean: save and end.
DrillResult terminate_twice(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"preempted"}, [&](DrillRun& run, Follow& follow) {
    std::vector<int> signals = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1};
    std::shuffle(signals.begin(), signals.end(), drill.random);
    follow.begin();
    ::kill(run.pid(), signals[0]);
    wait_up_to(drill, 100);
    return tell_to_stop(run, signals[1]);
  });
}

bool lives(pid_t process) {
  std::string stat;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", process)), stat);
  const size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat.substr(name_end + 2, 1) != "Z";
}

// Whoever supervises the ranks is killed: they go with it, and the same command goes on from a checkpoint.
DrillResult kill_launcher(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"start"}, [&](DrillRun& run, Follow& follow) {
    const std::vector<pid_t> ranks = run.rank_processes();
    follow.begin();
    if (std::string why = send_signal(run.pid(), SIGKILL); !why.empty()) return why;
    for (const Clock::time_point from = Clock::now(); const pid_t rank : ranks) {
      while (lives(rank)) {
        if (since(from) > drill.patience) return fmt::format("process {} outlived its launcher", rank);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    run.start_again();
    return std::string();
  });
}

// The same command beside the run is refused and changes nothing; then a rank is killed, which is still
// noticed.
DrillResult start_beside(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"rank_failed"}, [&](DrillRun& run, Follow& follow) {
    if (const int code = run.start_beside(); code != 2)
      return run.code() ? std::string("the run ended meanwhile")
                        : fmt::format("the same command beside it exited with code {} instead of 2", code);
    const pid_t rank = random_rank(drill, run);
    follow.begin();
    return send_signal(rank, SIGKILL);
  });
}

// Stopped, started again, and stopped before it has come to a step.
DrillResult terminate_at_the_start(Drill& drill, const Fault& fault) {
  return strike_again_and_again(drill, fault, {"preempted"}, [&](DrillRun& run, Follow& follow) {
    follow.begin();
    if (std::string why = tell_to_stop(run, SIGTERM); !why.empty()) return why;
    run.start_again();
    wait_up_to(drill, 700);
    if (!run.until([&] { return run.hears_signals(); })) return std::string("it ended before it began");
    return tell_to_stop(run, SIGTERM);
  });
}

DrillResult freeze(Drill& drill, const Fault& fault) {
  if (drill.ranks == 1) return {.skipped = "with a single rank, no other rank waits for it"};
  return strike_again_and_again(drill, fault, {"hang"}, [&](DrillRun& run, Follow& follow) {
    const pid_t rank = random_rank(drill, run);
    follow.begin();
    return send_signal(rank, SIGSTOP);
  });
}

// A byte of the newest checkpoint is not what it was: the one before it is taken.
DrillResult corrupt(Drill& drill, const Fault& fault) {
  DrillResult result;
  DrillRun run(options_of(drill, fault));
  if (!run.until([&] { return checkpoint::list(run.folder()).size() >= 2; })) {
    result.problem = "there were fewer than two checkpoints";
    return conclude(drill, run, result);
  }
  ::kill(run.pid(), SIGTERM);
  run.until([&] { return run.code().has_value(); });
  const int64_t before = run.step();
  const std::vector<std::string> checkpoints = checkpoint::list(run.folder());
  if (!damage_checkpoint(checkpoints.at(0), drill.random())) result.problem = "nothing could be corrupted";
  const Clock::time_point at = Clock::now();
  run.start_again();
  Struck& struck = result.struck.emplace_back();
  if (!run.until([&] { return run.newest_start() > 0 && run.newest_start() < before; }))
    result.problem = "the corruption was not detected";
  struck.noticed = since(at);
  if (result.problem.empty() && !run.until([&] { return run.step() > before; }))
    result.problem = "it did not recover";
  struck.recovered = since(at), struck.lost = before - run.newest_start();
  return conclude(drill, run, result);
}

// The disk is full for a while: saves fail aloud, training goes on, and the next save finds room again.
DrillResult full_disk(Drill& drill, const Fault& fault) {
  DrillResult result;
  SmallDisk disk(drill.folder + "/disk", drill.checkpoint_bytes);
  if (!disk.problem().empty()) return {.skipped = disk.problem()};
  DrillRun::Options options = options_of(drill, fault);
  options.folder = disk.path() + "/run";
  DrillRun run(std::move(options));
  if (!run.until([&] { return run.events("checkpoint_saved") >= 1; })) {
    result.problem = "nothing was saved";
    return conclude(drill, run, result);
  }
  const Clock::time_point at = Clock::now();
  if (!disk.fill(drill.checkpoint_bytes / 2)) result.problem = "the disk could not be filled";
  Struck& struck = result.struck.emplace_back();
  if (result.problem.empty() && !run.until([&] { return run.events("checkpoint_failed") >= 1; }))
    result.problem = "no save failed";
  struck.noticed = since(at);
  const int64_t saved = run.events("checkpoint_saved");
  disk.make_room();
  if (result.problem.empty() && !run.until([&] { return run.events("checkpoint_saved") > saved; }))
    result.problem = "it did not save again";
  struck.recovered = since(at);
  return conclude(drill, run, result);
}

DrillResult drop_connection(Drill& drill, const Fault& fault) {
  if (drill.ranks == 1) return {.skipped = "a single rank has no connections"};
  std::string problem;
  DrillResult result =
      strike_again_and_again(drill, fault, {"rank_failed", "hang"}, [&](DrillRun& run, Follow& follow) {
        const pid_t rank = random_rank(drill, run);
        follow.begin();
        return problem = drop_connections_of(rank);
      });
  if (!problem.empty()) return {.skipped = problem};
  return result;
}

}  // namespace

const std::vector<Fault>& drill_faults() {
  static const std::vector<Fault> faults = {
      {"kill", "kill -9 of a rank", {}, kill_rank},
      {"kill-save", "kill -9 of a rank during a save", {}, kill_while_saving},
      {"kill-recovery",
       "kill -9 of two ranks, the second while they restart",
       {},
       lose_while_recovering<SIGKILL>},
      {"kill-launcher", "kill -9 of the launcher, then the same command", {}, kill_launcher},
      {"kill-second", "the same command beside the run, then kill -9 of a rank", {}, start_beside},
      {"term", "SIGTERM to the run, then the same command", {}, terminate<SIGTERM>},
      {"hangup", "SIGHUP to the run, as from a closed terminal", {}, terminate<SIGHUP>},
      {"term-start", "SIGTERM to the run while it starts", {}, terminate_at_the_start},
      {"term-save", "SIGTERM to the run during a save", {}, terminate_while_saving},
      {"kill-term", "kill -9 of a rank, then SIGTERM to the run", {}, lose_and_terminate<SIGKILL>},
      {"stop-term", "SIGSTOP of a rank, then SIGTERM to the run", {}, lose_and_terminate<SIGSTOP>},
      {"term-kill", "SIGTERM to the run, then kill -9 of a rank", {}, terminate_and_lose},
      {"term-twice", "two different stop signals to the run", {}, terminate_twice},
      {"stop", "SIGSTOP of a rank", {"run.hang_timeout=3"}, freeze},
      {"stop-start",
       "kill -9 of a rank, then SIGSTOP of a new one",
       {"run.hang_timeout=3"},
       lose_while_recovering<SIGSTOP>},
      {"corrupt", "a corrupted byte in the newest checkpoint", {}, corrupt},
      {"disk", "a full disk", {}, full_disk},
      {"connection", "a dropped connection", {"parallel.engine=gloo", "run.hang_timeout=3"}, drop_connection},
  };
  return faults;
}

}  // namespace lockstep::cli
