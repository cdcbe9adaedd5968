// Runs in the background: they outlive their terminal, and attach finds them again.
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

const std::string kSmall =
    "$L train model.layers=1 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=8 log.every=1 "
    "log.fingerprint=true ";

std::string last_hash(const std::string& path) {
  const std::string text = base::read_file(path + "/metrics.jsonl");
  const size_t at = text.rfind("\"params_hash\":");
  return at == std::string::npos ? "none" : text.substr(at, 50);
}

TEST(Detach, ARunOutlivesItsTerminalAndIsFoundAgain) {
  const base::TemporaryFolder folder;
  const std::string& path = folder.path();
  const Outcome begun =
      run_shell(path, kSmall + "run.name=behind run.steps=400 --nproc 2 --detach --json 2>/dev/null");
  ASSERT_EQ(begun.code, 0) << begun.output;
  const int process = nlohmann::json::parse(begun.output)["process"];
  EXPECT_NE(::getsid(process), ::getsid(0));
  ::kill(process, SIGHUP);  // a terminal that closes
  const Outcome attached = run_shell(path, "$L attach behind");
  EXPECT_EQ(attached.code, 0) << attached.output;
  EXPECT_NE(attached.output.find("finished: 400 steps done"), std::string::npos) << attached.output;
  EXPECT_NE(base::read_file(path + "/runs/behind/logs/console.log").find("done: 400 of 400 steps"),
            std::string::npos);
  ASSERT_EQ(run_shell(path, kSmall + "run.name=here run.steps=400 -q").code, 0);
  EXPECT_EQ(last_hash(path + "/runs/behind"), last_hash(path + "/runs/here"));
}

TEST(Detach, WhatIsRefusedIsSaidAtOnce) {
  const base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{kSmall + "run.steps=5 parallel.data=64 --detach", 2, "needs 64 ranks"},
               {kSmall + "run.stepz=5 --detach", 2, "run.steps"},
               {kSmall + "run.steps=5 --run /dev/null/x --detach", 1, "/dev/null"},
               {kSmall + "run.steps=2 run.name=done -q && " + kSmall + "run.steps=2 run.name=done --detach",
                0, "already done"},
               {"$L attach none", 2, "is no run folder"},
               {"cd / && $L attach", 2, "there is no run"}});
}

// Who only waits for the first step may go; the run stays, and nobody says that it was stopped.
TEST(Detach, WhoeverWaitsMayBeStoppedAlone) {
  const base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(),
                kSmall +
                    "run.name=left run.steps=100000 --detach >out 2>&1 & waiting=$!; "
                    "until run=$(pgrep -P $waiting); do :; done; kill -STOP $run; "  // before its first step
                    "kill -TERM $waiting; { wait $waiting; } 2>/dev/null; echo code $?; cat out; kill -0 "
                    "$run && echo it stays; "
                    "kill -KILL $run");
  EXPECT_EQ(outcome.output, "code 143\nit stays\n");
}

// Asked to stop, it saves; attach says so with the exit code that means "run it again".
TEST(Detach, AttachSeesThatItWasStopped) {
  const base::TemporaryFolder folder;
  const Outcome begun =
      run_shell(folder.path(), kSmall + "run.name=long run.steps=1000000 --detach --json 2>/dev/null");
  ASSERT_EQ(begun.code, 0) << begun.output;
  ::kill(nlohmann::json::parse(begun.output)["process"].get<int>(), SIGTERM);
  const Outcome attached = run_shell(folder.path(), "$L attach long");
  EXPECT_EQ(attached.code, 75) << attached.output;
  EXPECT_NE(attached.output.find("lockstep why runs/long"), std::string::npos) << attached.output;
}

}  // namespace
}  // namespace lockstep::cli
