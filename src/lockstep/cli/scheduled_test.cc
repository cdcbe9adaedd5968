// Launchers as a scheduler starts and signals them, here with Open MPI's variables: one task a rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

// The scheduler's SIGINT comes to the first launcher, whose word reaches the second before the SIGINT does.
// Rank 1 stands still meanwhile, so that the signals that its launcher sends it stay there to be seen.
constexpr const char* kLateSignal = R"(
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=late-$$
task() {
  OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_LOCAL_RANK=$1 $L train model.layers=1 model.hidden=16 \
    data.seq_len=16 batch.strands=2 run.device=cpu run.steps=100000 >task-$1 2>&1 &
}
in_environment_of() { grep -qszx "$2" $1/environ; }
rank_one() {
  for p in /proc/[0-9]*; do
    in_environment_of $p PMIX_NAMESPACE=$PMIX_NAMESPACE && in_environment_of $p RANK=1 && echo ${p#/proc/}
  done
}
pending() { test $((0x$(sed -n 's/^ShdPnd:[^0-9a-f]*//p' /proc/$rank/status) & $1)) != 0; }
task 0; first=$!
task 1; second=$!
until test -s runs/first/metrics.jsonl; do sleep 0.05; done
rank=$(rank_one | head -n 1)
kill -STOP $rank
kill -INT $first
until pending 0x4000; do sleep 0.05; done  # SIGTERM
kill -INT $second
sleep 1
pending 0x2 && echo rank 1 was sent a SIGINT
kill -CONT $rank
wait $first; echo first $?
wait $second; echo second $?
)";

TEST(Scheduled, ASignalThatComesAfterTheLeadersWordIsNoSecondOne) {
  base::TemporaryFolder folder;
  EXPECT_EQ(run_shell(folder.path(), kLateSignal).output, "first 75\nsecond 75\n");
}

}  // namespace
}  // namespace lockstep::cli
