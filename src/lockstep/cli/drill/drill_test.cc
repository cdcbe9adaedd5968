// lockstep drill on a small recipe: every fault, and with LOCKSTEP_LONG hundreds of them. Also what a drill
// leaves behind: nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

const std::string kRecipe =
    "model.layers=2 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=16 batch.slices=8 "
    "batch.strands=8 run.device=cpu log.eval_batches=2 ";

int processes(const std::string& marker) {
  return std::atoi(run_shell("/", "pgrep -cf '[l]ockstep train.*" + marker + "'").output.c_str());
}

// Every row must come through with the undisturbed run's bits.
nlohmann::json expect_good(const std::string& words) {
  const base::TemporaryFolder folder;
  const uint64_t seed = std::random_device()() % 1000000 + 1;
  const std::string temporary = folder.path() + "/tmp";
  std::filesystem::create_directory(temporary);
  const Outcome outcome =
      run_shell(folder.path(), "export TMPDIR=" + temporary + "; $L drill " + kRecipe + words +
                                   " --json --seed " + std::to_string(seed) + " 2>log");
  SCOPED_TRACE("--seed " + std::to_string(seed));
  const nlohmann::json report = nlohmann::json::parse(outcome.output, nullptr, false);
  EXPECT_EQ(outcome.code, 0) << outcome.output << run_shell(folder.path(), "cat log").output;
  if (!report.is_object()) return {};
  for (const nlohmann::json& row : report["faults"]) {
    if (row.contains("skipped")) continue;
    EXPECT_TRUE(row["equal"]) << row.dump(2);
    EXPECT_GE(row["strikes"], 1) << row.dump(2);
    const std::string fault = row["fault"];
    const bool longer =
        fault.starts_with("stop") || fault.find("term") != std::string::npos || fault == "connection";
    EXPECT_LT(row["recovered_s"], longer ? 30 : 15) << row.dump(2);
  }
  EXPECT_EQ(processes(temporary), 0) << "something is still running";
  EXPECT_TRUE(std::filesystem::is_empty(temporary)) << run_shell(temporary, "find . | head -50").output;
  return report;
}

// Most of a drill's time goes into starting ranks: four of them where shards go round, else two. Many strikes
// in one run, and two to eight ranks, are HundredsOfFaults' and the soak's (tools/soak.py).
TEST(Drill, RanksThatAreKilled) { expect_good("--faults kill:2,kill-save,kill-recovery --steps 400"); }

TEST(Drill, SharesGoOnFromMemoryToo) {
  expect_good("--faults kill,kill-recovery --steps 300 parallel.zero=3 precision.compute=bf16");
}

TEST(Drill, EveryOtherFault) {
  const nlohmann::json report =
      expect_good("--nproc 2 --faults term,stop,corrupt,disk,connection --steps 600");
  EXPECT_EQ(report["faults"].size(), 5u);
}

// Told to stop at a bad moment: two things at once, at the start, during a save, by a dropped terminal.
TEST(Drill, ToldToStopAtBadMoments) {
  const nlohmann::json report =
      expect_good("--nproc 2 --faults hangup,term-start,term-save,kill-term:2,stop-term --steps 600");
  EXPECT_EQ(report["faults"].size(), 5u);
}

TEST(Drill, ARankAlone) {
  expect_good("--nproc 1 --faults kill,term,corrupt,stop,connection,kill-term,stop-term --steps 600");
}

// Seven seconds, and patience for four: what goes on is waited for.
TEST(Drill, ASlowRunIsWaitedFor) {
  ::setenv("LOCKSTEP_LINK_MBPS", "2", 1);
  expect_good("--nproc 2 --faults term --patience 4 --steps 45");
  ::unsetenv("LOCKSTEP_LINK_MBPS");
}

// Signals in pairs, a launcher that is killed, a second start beside the run, a frozen rank in a recovery.
TEST(Drill, TwoThingsAtOnce) {
  const nlohmann::json report =
      expect_good("--nproc 2 --faults kill-launcher,kill-second,term-kill,term-twice,stop-start --steps 600");
  EXPECT_EQ(report["faults"].size(), 5u);
}

// The soak asks the program which faults there are.
TEST(Drill, TheSoakStrikesAndSaysHowItWent) {
  const base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(), "python3 -B " LOCKSTEP_SOURCE
                               "/tools/soak.py --program $L --kinds kill --times 1 --seed 5 --only 1 2>&1");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find(" drills, 0 failed, 0 not finished"), std::string::npos) << outcome.output;
}

TEST(Drill, Words) {
  const base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{"$L drill --faults kil", 2, "did you mean kill?"},
               {"$L drill --faults kill:0", 2, "[LS0561]"},
               {"$L drill --faults kill:x", 2, "[LS0561]"},
               {"$L drill --nproc 0", 2, "[LS0561]"},
               {"$L drill --patience 0", 2, "[LS0561]"},
               {"$L drill optim.lr=much", 2, "optim.lr"},
               {"$L drill batch.global=2 batch.slices=2 --nproc 4 --faults kill", 1, "[LS0603]"}});
}

// The soak test: 200 kills in one run of four ranks, 50 more in the middle of saves and recoveries, and a
// hundred stop signals.
TEST(Drill, HundredsOfFaults) {
  if (std::getenv("LOCKSTEP_LONG") == nullptr) GTEST_SKIP() << "only with ./dev test --long";
  const nlohmann::json report = expect_good(
      "--faults kill:200,kill-save:25,kill-recovery:25,kill-term:40,stop-term:20,term-start:20,term-save:20");
  for (const nlohmann::json& row : report["faults"]) {
    std::printf("%s: %d strikes, recovered after %.2f s (median), %.2f s at most\n",
                row["fault"].get<std::string>().c_str(), row["strikes"].get<int>(),
                row["recovered_s"].get<double>(), row["recovered_most_s"].get<double>());
  }
}

}  // namespace
}  // namespace lockstep::cli
