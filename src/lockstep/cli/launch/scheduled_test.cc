// Launchers as a scheduler starts and signals them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"
#include "lockstep/launch/rendezvous/network.h"

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

// The environment of each of two workers ($node), as the place writes it; both are on this machine.
struct Workers {
  const char* place;
  const char* variables;
};
constexpr Workers kWorkers[] = {
    {"a pod of a PyTorchJob",
     "KUBERNETES_SERVICE_HOST=10.96.0.1 PET_NNODES=2 PET_NODE_RANK=$node PET_MASTER_ADDR=127.0.0.1 "
     "PET_MASTER_PORT=$port"},
    {"a Vertex AI worker",
     "CLUSTER_SPEC='{\"cluster\":{\"workerpool0\":[\"127.0.0.1:'$port'\"],\"workerpool1\":[\"localhost:'$"
     "port'\"]},\"task\":{\"type\":"
     "\"workerpool'$node'\",\"index\":0}}' CLOUD_ML_JOB_ID=$port"},
    {"a SageMaker host",
     "TRAINING_JOB_NAME=first-$port SM_HOSTS='[\"127.0.0.1\",\"localhost.\"]' SM_CURRENT_HOST=$(test $node = "
     "0 && echo 127.0.0.1 || echo "
     "localhost.)"},
    {"an Azure ML node",
     "AZUREML_RUN_ID=sky_$port NODE_RANK=$node WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "
     "AZ_BATCH_HOST_LIST=127.0.0.1,localhost LOCAL_RANK=0 RANK=$node"},
    {"a TPU VM", "TPU_WORKER_ID=$node TPU_WORKER_HOSTNAMES=127.0.0.1,localhost JOBSET_NAME=first-$port"},
};

constexpr const char* kSameBits = R"sh(
words="train model.layers=1 model.hidden=16 data.seq_len=16 batch.global=4 run.device=cpu run.steps=5 log.fingerprint=true log.eval_every=0 --json"
hash() { grep -o '"params_hash": *"[0-9a-f]*"' | tail -n 1 | grep -o '[0-9a-f]\{32\}'; }
one=$($L $words --run alone 2>&1 | hash)
export LOCKSTEP_SECRET=0123456789abcdef0123456789abcdef
worker() { node=$1; env VARIABLES $L $words --nproc 1 --run both >worker-$1 2>&1; }
worker 0 & first=$!
worker 1 & second=$!
wait $first; a=$?
wait $second; b=$?
test $a$b = 00 || cat worker-0 worker-1
test -n "$one" && test "$(cat worker-0 | hash)" = "$one" && echo same bits
)sh";

TEST(Scheduled, EveryPlaceGivesOneRanksBits) {
  for (const Workers& row : kWorkers) {
    SCOPED_TRACE(row.place);
    base::TemporaryFolder folder;
    std::string script = fmt::format("port={}\n{}", launch::free_port(), kSameBits);
    script.replace(script.find("VARIABLES"), 9, row.variables);
    EXPECT_EQ(run_shell(folder.path(), script).output, "same bits\n");
  }
}

}  // namespace
}  // namespace lockstep::cli
