// `lockstep train` under faults and notices, as a user meets them: what it says, how it ends, and the bits.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/patience.h"
#include "lockstep/base/ring.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/cli/testing.h"
#include "lockstep/device/device.h"
#include "lockstep/launch/process/descendants.h"
#include "lockstep/launch/rendezvous/network.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

const std::string kTiny =
    "train model.layers=2 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=16 batch.slices=8 "
    "batch.strands=8 log.eval_every=0 log.eval_batches=2 run.device=cpu ";

// A run that takes too long has gone wrong; how long that is depends on the machine and what else it does. So
// tests wait as long as a run shows something new, and this is only for what outlives its test.
const std::string kAtMost = "timeout -k 5 1200 ";

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
std::string hash_of(const Outcome& outcome) {
  const size_t at = outcome.output.rfind("\"params_hash\":\"");
  return at == std::string::npos ? "none: " + outcome.output : outcome.output.substr(at + 15, 32);
}

std::string undisturbed(const std::string& folder, int64_t steps) {
  return hash_of(
      run_shell(folder, "$L " + kTiny + fmt::format("run.steps={} run.name=undisturbed --json", steps)));
}

// Names of all files of a folder, with what tells whether one was replaced; those that a run writes on grow.
std::string files_of(const std::string& folder) {
  return run_shell(folder, "find . -name '*.tmp' -prune -o -type f -printf '%P %i\\n' | LC_ALL=C sort")
      .output;
}

TEST(Faults, ASecondStartIsRefusedAndTouchesNothing) {
  const struct {
    const char *first, *second;
  } rows[] = {{"--nproc 2", "--nproc 2"},
              {"--nproc 2", ""},
              {"", "--nproc 2"},
              {"", "--resume never"},
              {"--nproc 2 --max-restarts 0", "--nproc 3 --resume never"}};
  for (const auto& [first, second] : rows) {
    SCOPED_TRACE(std::string(first) + " | " + second);
    const base::TemporaryFolder folder;
    const std::string run = folder.path() + "/runs/shared";
    Training training(folder.path(), "shared", std::string("run.steps=1000000 ") + first);
    ASSERT_TRUE(training.reaches(3));
    const std::string before = files_of(run);
    const Outcome refused =
        run_shell(folder.path(), kAtMost + "$L " + kTiny + "run.steps=1000000 run.name=shared " + second);
    EXPECT_EQ(refused.code, 2) << refused.output;
    EXPECT_NE(refused.output.find("[LS0804]"), std::string::npos) << refused.output;
    EXPECT_EQ(files_of(run), before);
    EXPECT_EQ(training.event("rank_failed"), "");
    EXPECT_EQ(training.starts().size(), 1u);
    const int64_t step = training.step();
    EXPECT_TRUE(training.reaches(step + 3));
    training.stop(SIGTERM);
    EXPECT_EQ(training.end().code, 75);
  }
}

TEST(Faults, AFrozenRankIsNamedAndTheRunGoesOn) {
  const base::TemporaryFolder folder;
  Training training(folder.path(), "frozen", "run.steps=800 --nproc 3 run.hang_timeout=2 --json");
  ASSERT_TRUE(training.reaches(20));
  ::kill(training.rank(1), SIGSTOP);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 800));
  const std::string why = training.event("hang");
  // The signal may find it inside a collective as well as before one.
  std::vector<std::string> parts = {"rank 1 (", ", seq ", ", group ", " waiting there for "};
  if (why.find(" inside ") != std::string::npos) {
    parts.push_back(") stopped (SIGSTOP) inside ");
  } else {
    parts.insert(parts.end(),
                 {") never entered ", "; ranks 0 2 have been waiting", "its process is stopped (SIGSTOP)"});
  }
  for (const std::string& part : parts) EXPECT_NE(why.find(part), std::string::npos) << part << "\n" << why;
  EXPECT_NE(outcome.output.find("lockstep: the run hangs: rank 1 ("), std::string::npos) << outcome.output;
  ASSERT_EQ(training.starts().size(), 2u);
  EXPECT_GT(training.starts()[1], 0) << "it began again from nothing";
}

// Where the wish for a short timeout is the user's, the collective's own sentence comes first.
TEST(Faults, ATimeoutThatWasAskedForCounts) {
  const base::TemporaryFolder folder;
  Training training(folder.path(), "timeout",
                    "run.steps=100000 --nproc 2 parallel.timeout=2 run.hang_timeout=600 --max-restarts 0");
  ASSERT_TRUE(training.reaches(20));
  ::kill(training.rank(1), SIGSTOP);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  for (const char* part : {"(call ", " of group ", "rank 1 ", "[LS0520]"}) {
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
  }
  EXPECT_EQ(training.event("hang"), "");
}

// The same where nothing on the host can end the wait. NCCL's ranks share the GPU.
TEST(Faults, ATimeoutOnAGpuEndsTheRank) {
  if (device::cuda_availability().devices == 0) GTEST_SKIP() << device::cuda_availability().why_not;
  const base::TemporaryFolder folder;
  Training training(folder.path(), "timeout",
                    "run.device=cuda:0 run.steps=100000 --nproc 2 parallel.timeout=6 run.hang_timeout=600 "
                    "--max-restarts 0");
  ASSERT_TRUE(training.reaches(20));
  ::kill(training.rank(1), SIGSTOP);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("did not finish within 6 s: rank 1 has not reached it"), std::string::npos)
      << outcome.output;
}

// It is named, and what the launcher's memory holds is saved all the same.
TEST(Faults, ARankThatFailsWhenToldToStopIsNamed) {
  const base::TemporaryFolder folder;
  Training training(folder.path(), "stopping", "run.steps=100000 --nproc 2");
  ASSERT_TRUE(training.reaches(20));
  const pid_t rank = training.rank(1);
  ::kill(rank, SIGSTOP);
  training.signal(SIGTERM);
  ::kill(rank, SIGSEGV);
  ::kill(rank, SIGCONT);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 75) << outcome.output;
  EXPECT_NE(outcome.output.find("killed by SIGSEGV (11)"), std::string::npos) << outcome.output;
  EXPECT_FALSE(training.event("checkpoint_saved").empty()) << outcome.output;
}

// A signal to stop ends with 75 and loses no more than the steps since the last snapshot, whatever the run is
// at.
struct StopRow {
  const char* name;
  const char* words;
  int number;
  std::function<void(Training&)> before;  // right before the signal
  bool saved;                             // there was something to save
};

class StopSignals : public testing::TestWithParam<StopRow> {};

std::vector<StopRow> stop_rows() {
  const auto steps = [](Training& run) { ASSERT_TRUE(run.reaches(20)); };
  const auto lose = [=](int rank, int number, int milliseconds) {
    return [=](Training& run) {
      steps(run);
      ::kill(run.rank(rank), number);
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    };
  };
  const auto after = [](int milliseconds) {
    return [=](Training& run) {
      ASSERT_TRUE(run.until([&] { return run.pid() > 0; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    };
  };
  return {
      {"KilledThenTerm", "--nproc 2", SIGTERM, lose(1, SIGKILL, 0), true},
      {"KilledThenTermInTheRollCall", "--nproc 2", SIGTERM, lose(0, SIGKILL, 150), true},
      {"KilledThenTermAsRanksStart", "--nproc 2", SIGTERM, lose(1, SIGKILL, 400), true},
      {"KilledThenTermAsRanksConnect", "--nproc 3", SIGINT, lose(1, SIGKILL, 700), true},
      {"FrozenThenTerm", "--nproc 3", SIGTERM, lose(1, SIGSTOP, 1000), true},
      {"TheFirstFrozenThenTerm", "--nproc 2", SIGTERM, lose(0, SIGSTOP, 100), true},
      {"OneRankFrozenThenTerm", "--nproc 1", SIGTERM, lose(0, SIGSTOP, 100), true},
      {"Hangup", "--nproc 2", SIGHUP, steps, true},
      {"HangupAlone", "", SIGHUP, steps, true},
      {"QuitAlone", "", SIGQUIT, steps, true},
      {"Quit", "--nproc 2", SIGQUIT, steps, true},
      {"AtOnce", "--nproc 2", SIGTERM, after(30), false},
      {"AtTheStart", "--nproc 2", SIGTERM, after(300), false},
      {"AloneAtOnce", "", SIGTERM, after(30), false},
      {"AloneAtTheStart", "", SIGINT, after(200), false},
      {"InAnEvaluation", "log.eval_every=1 log.eval_batches=4000", SIGTERM,
       [](Training& run) { ASSERT_TRUE(run.until([&] { return run.phase() == watch::Phase::evaluate; })); },
       true},
      {"RanksInAnEvaluation", "--nproc 2 log.eval_every=1 log.eval_batches=4000", SIGTERM,
       [](Training& run) { ASSERT_TRUE(run.until([&] { return run.phase() == watch::Phase::evaluate; })); },
       true},
      {"InASave", "--nproc 2 checkpoint.every=1", SIGTERM,
       [](Training& run) { ASSERT_TRUE(run.until([&] { return run.phase() == watch::Phase::save; })); },
       true},
  };
}

INSTANTIATE_TEST_SUITE_P(Every, StopSignals, testing::ValuesIn(stop_rows()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(StopSignals, SavesAndEndsWith75) {
  const StopRow& row = GetParam();
  const base::TemporaryFolder folder;
  Training training(folder.path(), "stop",
                    std::string("run.steps=100000 checkpoint.snapshot_every=1 ") + row.words);
  row.before(training);
  const int64_t done = training.step();
  training.signal(row.number);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 75) << outcome.output;
  if (!row.saved) return;
  EXPECT_GE(training.newest_checkpoint(), done - 1) << outcome.output;
}

// A rank that is stopped before its first step is named, although nobody waits for it yet.
TEST(Faults, ARankThatIsStoppedWhileItStartsIsNamed) {
  const base::TemporaryFolder folder;
  Training training(folder.path(), "start", "run.steps=5 run.hang_timeout=2 --nproc 3 --max-restarts 0");
  auto ranks = training.ranks();
  ASSERT_TRUE(training.until([&] { return !(ranks = training.ranks()).empty(); }));
  ::kill(ranks.back(), SIGSTOP);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("has been stopped (SIGSTOP) for"), std::string::npos) << outcome.output;
}

// A small file system of its own that can be made to stand still; needs root.
class StandingDisk {
 public:
  explicit StandingDisk(const std::string& folder) : folder_(folder) {
    there_ = run_shell(folder,
                       "truncate -s 200M disk.img && mkfs.ext4 -q disk.img && mkdir mnt && "
                       "mount -o loop disk.img mnt && fsfreeze -f mnt && fsfreeze -u mnt")
                 .code == 0;
  }
  ~StandingDisk() { run_shell(folder_, "fsfreeze -u mnt; umount mnt || umount -l mnt"); }
  bool there() const { return there_; }
  std::string path() const { return folder_ + "/mnt"; }
  void freeze(bool now) const { run_shell(folder_, now ? "fsfreeze -f mnt" : "fsfreeze -u mnt"); }

 private:
  std::string folder_;
  bool there_ = false;
};

// The disk stands still for longer than ranks are waited for, and they cannot even be killed: it is named,
// and when it comes back the run goes on, to the same bits.
TEST(Faults, ADiskThatStandsStillIsNamedAndTheRunGoesOn) {
  const base::TemporaryFolder folder;
  const StandingDisk disk(folder.path());
  if (!disk.there()) GTEST_SKIP() << "no file system can be mounted and frozen here";
  Training training(disk.path(), "still", "run.steps=400 run.hang_timeout=2 --nproc 2 --json");
  ASSERT_TRUE(training.reaches(20));
  disk.freeze(true);
  std::this_thread::sleep_for(std::chrono::seconds(25));  // longer than the launcher waits for ranks to end
  disk.freeze(false);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("a disk or file server"), std::string::npos) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 400));
}

// Ranks cannot save: the launcher writes what its memory holds, and the next one goes on from there, to the
// same bits.
TEST(Faults, WhatRanksCannotSaveTheLauncherKeeps) {
  const base::TemporaryFolder folder;
  const std::string words = "run.steps=400 checkpoint.snapshot_every=1 --nproc 2 --json";
  const std::string in_the_way = folder.path() + "/runs/kept/checkpoints";
  {
    Training training(folder.path(), "kept", words + " --max-restarts 0");
    ASSERT_TRUE(training.reaches(20));
    std::ofstream(in_the_way) << "no folder";
    ::kill(training.rank(1), SIGKILL);
    const Outcome outcome = training.end();
    EXPECT_EQ(outcome.code, 1) << outcome.output;
    EXPECT_NE(outcome.output.find("was written to runs/kept/snapshots"), std::string::npos) << outcome.output;
  }
  std::filesystem::remove(in_the_way);
  const Outcome outcome = run_shell(folder.path(), "$L " + kTiny + words + " run.name=kept");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find("resuming from step 0"), std::string::npos);
  EXPECT_NE(outcome.output.find("resuming from step"), std::string::npos) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 400));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs/kept/snapshots")) << "a checkpoint holds more";
}

TEST(Faults, WhatWouldFailAgainIsNotTried) {
  const base::TemporaryFolder folder;
  const Outcome outcome = run_shell(
      folder.path(),
      "$L " + kTiny + "run.steps=50 optim.lr=1000 optim.clip=0 optim.warmup=0 model.init_std=10 --nproc 2");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("[LS0601]"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("restarting all ranks"), std::string::npos) << outcome.output;
}

TEST(Faults, StartingOverDoesNotFallBackToWhatWasThereBefore) {
  const base::TemporaryFolder folder;
  ASSERT_EQ(run_shell(folder.path(), "$L " + kTiny + "run.steps=40 run.name=over").code, 0);
  Training training(folder.path(), "over",
                    "run.steps=3000 --nproc 2 --resume never checkpoint.snapshot_every=0 --json");
  ASSERT_TRUE(training.reaches(45));  // lines of the new run only: the old one had 40
  ::kill(training.rank(0), SIGKILL);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(training.starts(), (std::vector<int64_t>{0, 0})) << "the second time it may not begin at step 40";
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 3000));
}

TEST(Notices, SignalsSaveAndEndWith75) {
  const base::TemporaryFolder folder;
  const auto signalled = [&](const std::string& name, const std::string& words, const std::string& how) {
    return Row{
        fmt::format("$L {0} run.steps=100000 run.name={1} {2} & until test -s runs/{1}/metrics.jsonl; do "
                    "sleep 0.05; done; {3}; wait $!; code=$?; grep -c checkpoint_saved "
                    "runs/{1}/events.jsonl; exit $code",
                    kTiny, name, words, how),
        75, "run the same command again"};
  };
  expect_rows(folder.path(),
              {signalled("usr1", "--nproc 2", "kill -USR1 $!"),
               signalled("alone", "", "kill -USR1 $!; sleep 0.01; kill -TERM $!"),
               signalled("twice", "--nproc 3", "kill -TERM $!; kill -TERM $!; sleep 0.02; kill -TERM $!")});
}

// Compute Engine's metadata server, on the loopback interface.
TEST(Notices, ComputeEngineSaysItInItsMetadata) {
  const base::TemporaryFolder folder;
  folder.write("server.py",
               "import http.server, os\n"
               "class Handler(http.server.BaseHTTPRequestHandler):\n"
               "  def do_GET(self):\n"
               "    good = self.headers.get('Metadata-Flavor') == 'Google'\n"
               "    go = os.path.exists('go') and self.path.endswith('/instance/preempted')\n"
               "    self.send_response(200 if good else 403); self.end_headers()\n"
               "    self.wfile.write(b'TRUE' if go else b'FALSE')\n"
               "  def log_message(self, *words): pass\n"
               "server = http.server.HTTPServer(('127.0.0.1', 0), Handler)\n"
               "open('port', 'w').write(str(server.server_port)); os.rename('port', 'port.there')\n"
               "server.serve_forever()\n");
  for (const char* words : {"run.name=one", "run.name=two --nproc 2"}) {
    const std::string name = std::string(words).substr(9, 3);
    const Outcome outcome = run_shell(
        folder.path(),
        fmt::format(
            "rm -f go port.there; python3 server.py & server=$!; until test -s port.there; do sleep 0.05; "
            "done; "
            "export GCE_METADATA_HOST=127.0.0.1:$(cat port.there); timeout 60 $L {0} run.steps=1000000 {1} & "
            "until test -s runs/{2}/metrics.jsonl; do sleep 0.05; done; sleep 1.5; kill -0 $! && touch go; "
            "wait $!; code=$?; kill $server; exit $code",
            kTiny, words, name));
    EXPECT_EQ(outcome.code, 75) << outcome.output;
    EXPECT_NE(outcome.output.find("Compute Engine is preempting this machine: saving and stopping"),
              std::string::npos)
        << outcome.output;
  }
}

// A step takes longer than the notice: it is dropped, and what the launcher's memory holds is saved.
TEST(Notices, AStepThatDoesNotFitIsDropped) {
  const base::TemporaryFolder folder;
  const std::string words = "run.steps=6 --nproc 2 checkpoint.notice=5 checkpoint.snapshot_every=1 --json";
  const std::string slow = "export LOCKSTEP_LINK_MBPS=0.1;";
  Training training(folder.path(), "drop", words, slow);
  ASSERT_TRUE(training.reaches(3));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto began = std::chrono::steady_clock::now();
  run_shell(folder.path(), "kill -TERM $(cat drop.pid)");
  const Outcome stopped = training.end();
  EXPECT_EQ(stopped.code, 75) << stopped.output;
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 12);
  EXPECT_NE(stopped.output.find("does not fit into the notice period and is abandoned"), std::string::npos)
      << stopped.output;
  // On a busy machine ranks may not come up in time; then the launcher keeps it.
  EXPECT_TRUE(training.newest_checkpoint() >= 3 ||
              std::filesystem::exists(folder.path() + "/runs/drop/snapshots"))
      << stopped.output;
  EXPECT_NE(training.event("notice").find("of notice: when this machine is preempted"), std::string::npos);
  const Outcome outcome = run_shell(folder.path(), "$L " + kTiny + words + " run.name=drop");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 6));
}

// The launcher that leads hears from the other node what its ranks are doing.
TEST(Elastic, AFrozenRankOfAnotherNodeIsNamed) {
  const base::TemporaryFolder folder;
  const std::string before = "export LOCKSTEP_SECRET=correct-horse-battery-staple-correct;";
  const auto node = [&, port = launch::free_port()](int number) {
    return fmt::format(
        "run.steps=1500 --json --nnodes 2 --nproc 2 --node-rank {} --rdzv-endpoint 127.0.0.1:{} "
        "run.hang_timeout=3",
        number, port);
  };
  Training first(folder.path(), "apart", node(0), before);
  std::future<Outcome> second = std::async(std::launch::async, [&] {
    return run_shell(folder.path(),
                     before + " exec " + kAtMost + "$L " + kTiny + node(1) + " run.name=apart");
  });
  ASSERT_TRUE(first.reaches(50));
  ::kill(first.rank(3), SIGSTOP);
  const Outcome outcome = first.end(), other = second.get();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(other.code, 0) << other.output;
  // Where it is stopped is chance: outside a call, or inside one that the others have entered too.
  for (const char* part : {"rank 3 (", "stopped (SIGSTOP)", " waiting there for "})
    EXPECT_NE(first.event("hang").find(part), std::string::npos) << first.event("hang");
  EXPECT_EQ(first.event("hang").find("rank 2 ("), std::string::npos) << first.event("hang");
  EXPECT_NE(other.output.find("the run hangs: rank 3 ("), std::string::npos) << "every node says it";
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 1500));
}

// A node is lost for good and another takes its place: its ranks' shares come from the launcher that kept
// them.
TEST(Elastic, ALostNodesSharesAreKeptByAnother) {
  const base::TemporaryFolder folder;
  const std::string before = "export LOCKSTEP_SECRET=correct-horse-battery-staple-correct;";
  const auto node = [&, port = launch::free_port()](int number) {
    return fmt::format(
        "run.steps=1500 --json --nnodes 2 --nproc 2 --node-rank {} --rdzv-endpoint 127.0.0.1:{} "
        "--rdzv-conf join_timeout=120,node_timeout=3 parallel.zero=3 checkpoint.replicas=1 "
        "checkpoint.snapshot_every=5",
        number, port);
  };
  Training first(folder.path(), "kept", node(0), before);
  std::future<Outcome> second = std::async(std::launch::async, [&] {
    return run_shell(folder.path(),
                     before + " exec $L " + kTiny + node(1) + " run.name=kept >second.txt 2>&1");
  });
  ASSERT_TRUE(first.reaches(100));
  EXPECT_EQ(run_shell(folder.path(), "kill -9 $(pgrep -f '[l]ockstep train.*--node-rank 1.*kept' -o)").code,
            0);
  second.get();
  EXPECT_TRUE(first.until([&] { return !first.event("restart").empty(); }));
  std::future<Outcome> third = std::async(std::launch::async, [&] {
    return run_shell(folder.path(), before + " exec " + kAtMost + "$L " + kTiny + node(1) + " run.name=kept");
  });
  const Outcome outcome = first.end(), replaced = third.get();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(replaced.code, 0) << replaced.output;
  EXPECT_NE(replaced.output.find("fetched snapshots of 2 ranks"), std::string::npos) << replaced.output;
  ASSERT_EQ(first.starts().size(), 2u) << outcome.output;
  EXPECT_GT(first.starts()[1], 0) << "nothing was saved on disk, and nothing came from memory";
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 1500));
}

// Two launchers on this machine as nodes: one is lost, the run goes on with the other, and takes a new one
// in.
TEST(Elastic, FewerAndMoreNodesWithTheSameBits) {
  const base::TemporaryFolder folder;
  const std::string before = "export LOCKSTEP_SECRET=correct-horse-battery-staple-correct;";
  const auto node = [&, port = launch::free_port()](int number) {
    return fmt::format(
        "run.steps=4000 --json --nnodes 1:2 --nproc 2 --node-rank {} --rdzv-endpoint 127.0.0.1:{} "
        "--rdzv-conf join_timeout=120,node_timeout=3,last_call_timeout=1",
        number, port);
  };
  Training first(folder.path(), "elastic", node(0), before);
  std::future<Outcome> second = std::async(std::launch::async, [&] {
    return run_shell(folder.path(),
                     before + " exec $L " + kTiny + node(1) + " run.name=elastic >second.txt 2>&1");
  });
  ASSERT_TRUE(first.reaches(60));
  EXPECT_EQ(
      run_shell(folder.path(), "kill -9 $(pgrep -f '[l]ockstep train.*--node-rank 1.*elastic' -o)").code, 0);
  second.get();
  ASSERT_TRUE(first.until([&] { return first.starts().size() >= 2; }))
      << "the run did not go on with one node";
  const int64_t there = first.starts()[1];
  EXPECT_GT(there, 0) << "copies in memory suit any number of ranks";
  ASSERT_TRUE(first.reaches(there + 20));
  std::future<Outcome> third = std::async(std::launch::async, [&] {
    return run_shell(folder.path(),
                     before + " exec " + kAtMost + "$L " + kTiny + node(1) + " run.name=elastic");
  });
  const Outcome outcome = first.end(), joined = third.get();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(joined.code, 0) << joined.output;
  EXPECT_EQ(first.starts().size(), 3u) << outcome.output;
  EXPECT_NE(outcome.output.find("a node joined"), std::string::npos) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 4000));
}

}  // namespace
}  // namespace lockstep::cli
