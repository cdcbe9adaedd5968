// What the launcher does with consoles that are slow, gone or were never there.
#include <gtest/gtest.h>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

// `yes` fills the pipe at once, and nobody empties it while the launcher is asked to end.
TEST(LaunchConsole, AReaderThatPausesDoesNotMakeTheLauncherDeaf) {
  base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(),
                "mkfifo out; sleep 30 <out & reader=$!; $L launch --nproc-per-node 2 yes >out & sleep 1; "
                "kill -TERM $!; wait $!; code=$?; kill $reader; exit $code");
  EXPECT_EQ(outcome.code, 143) << outcome.output;
}

TEST(LaunchConsole, AReaderThatPausesGetsEverythingInTheEnd) {
  base::TemporaryFolder folder;
  // The ranks' last words fit in no pipe, but the launcher keeps them when all ranks have ended.
  expect_rows(folder.path(), {{"$L launch sh -c 'seq 30000' | (sleep 2; tail -1)", 0, "30000"},
                              {"$L launch sh -c 'seq 200000' | (sleep 1; tail -1)", 0, "200000"},
                              {"$L launch --tee 1 sh -c 'seq 200000' | (sleep 1; tail -1)", 0, "]:200000"}});
}

// The first file or socket that a program opens gets the number of a closed stream.
TEST(LaunchConsole, ClosedStreamsAreNobodysFiles) {
  base::TemporaryFolder folder;
  for (const char* closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"}) {
    const Outcome outcome = run_shell(
        folder.path(), fmt::format("$L launch --nproc-per-node 2 sh -c 'readlink /proc/$$/fd/0 > in.$RANK; "
                                   "echo out; echo err >&2' {}; code=$?; cat in.0 in.1; exit $code",
                                   closed));
    EXPECT_EQ(outcome.code, 0) << closed << "\n" << outcome.output;
    EXPECT_EQ(outcome.output.find("socket:"), std::string::npos) << closed << "\n" << outcome.output;
  }
}

TEST(LaunchConsole, TheLogThatIsNamedHoldsTheLinesThatAreShown) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{"$L launch --redirects 3 --log-dir logs sh -c 'echo by out; exit 1'", 1, "0/stdout.log"},
               {"$L launch --redirects 3 --log-dir logs sh -c 'echo by out; echo by err >&2; exit 1'", 1,
                "0/stderr.log"}});
}

TEST(LaunchConsole, ManyRanksFitInAShellsUsualLimitOfFiles) {
  base::TemporaryFolder folder;
  const std::string launch = "$L launch --nproc-per-node 40 sh -c 'ulimit -Sn'";
  expect_rows(folder.path(), {{"ulimit -Sn 64; " + launch + " | sort | uniq -c", 0, "40 64\n"},
                              {"ulimit -n 64; " + launch, 1, "too many open files"}});
}

}  // namespace
}  // namespace lockstep::cli
