// Signals and notices that end a run: what is saved, and exit 75, whatever the run is at.
#include <gtest/gtest.h>

#include "lockstep/cli/train/background_training.h"

namespace lockstep::cli {
namespace {

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
      {"KilledThenTermInTheRendezvous", "--nproc 2", SIGTERM, lose(0, SIGKILL, 150), true},
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
                         [](const auto& row) { return std::string(row.param.name); });

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

// As early as it gets: the recipe is still being read (from a pipe that says nothing yet).
TEST(StopSignal, BeforeTheRecipeIsRead) {
  const base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{"mkfifo recipe; (exec sleep 20 > recipe) & writer=$!; $L train recipe & run=$!; sleep 0.5; "
                "until grep -qs 'SigCgt:.*[4567cdef]...$' /proc/$run/status; do sleep 0.05; done; "
                "kill -TERM $run; wait $run; code=$?; kill $writer; exit $code",
                75, "stopped before there was anything to save"}});
}

}  // namespace
}  // namespace lockstep::cli
