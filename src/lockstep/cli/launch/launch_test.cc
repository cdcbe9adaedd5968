// lockstep launch as a user sees it: environment, logs, failures, restarts, signals, and several nodes on
// one machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/testing.h"
#include "lockstep/device/topology/affinity.h"
#include "lockstep/device/topology/topology_read.h"
#include "lockstep/launch/rendezvous/network.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines = base::split_lines(text);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(Launch, WordsAreChecked) {
  base::TemporaryFolder folder;
  folder.write("notes.txt", "");
  expect_rows(folder.path(), {
                                 {"$L launch --help", 0, "lockstep launch [options] PROGRAM ..."},
                                 {"COLUMNS=40 $L launch --help", 0, " --nproc-per-node gpu train.py\n"},
                                 {"$L launch", 2, "launch needs a program"},
                                 {"$L launch --nproc 2", 2, "launch needs a program"},
                                 {"$L launch --nproc-per-nod 2 true", 2, "did you mean --nproc-per-node?"},
                                 {"$L launch --nproc-per-node x true", 2, "[LS0530]"},
                                 {"$L launch --rdzv-backend etcd true", 2, "etcd is not supported"},
                                 {"$L launch --nnodes 2 true", 2, "--rdzv-endpoint"},
                                 {"$L launch no.py", 2, "no such script"},
                                 {"$L launch no-such-program", 2, "[LS0531]"},
                                 {"$L launch --no-python notes.txt", 2, "is not executable"},
                                 {"PET_NPROC_PER_NODE=none $L launch true", 2, "[LS0530]"},
                                 {"PET_NPROC_PER_NODE=3 $L launch sh -c 'echo rank $RANK.'", 0, "rank 2."},
                                 {"$L launch sh -c 'echo got \"$@\"' sh --help --nproc-per-node -x", 0,
                                  "got --help --nproc-per-node -x"},
                                 {"$L launch -- sh -c 'echo plain'", 0, "plain"},
                                 {"$L launch --nproc_per_node=2 true", 0, ""},
                             });
}

TEST(Launch, AVirtualLocalRankSeesItsOwnGpuAlone) {
  base::TemporaryFolder folder;
  const std::string launch =
      "$L launch --nproc-per-node 2 --virtual-local-rank sh -c 'echo $RANK: $LOCAL_RANK "
      "$CUDA_VISIBLE_DEVICES.'";
  expect_rows(folder.path(), {{"unset CUDA_VISIBLE_DEVICES; " + launch, 0, "1: 0 1."},
                              {"CUDA_VISIBLE_DEVICES=3,GPU-5 " + launch, 0, "1: 0 GPU-5."},
                              {"CUDA_VISIBLE_DEVICES=3 " + launch, 2, "lists no GPU for local rank 1"}});
}

TEST(Launch, APortInUseIsNamed) {
  base::TemporaryFolder folder;
  const std::string listener =
      "import socket,time; s=socket.socket(); s.bind((\"127.0.0.1\",0)); s.listen(); "
      "print(s.getsockname()[1],flush=True); time.sleep(60)";
  expect_rows(folder.path(), {{fmt::format("python3 -c '{}' > port & until [ -s port ]; do sleep 0.05; done; "
                                           "$L launch --master-port $(cat port) true; code=$?; "
                                           "kill $!; exit $code",
                                           listener),
                               2, "another program is listening on it"}});
}

TEST(Launch, RanksGetTorchrunsEnvironment) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(
      folder.path(),
      "unset OMP_NUM_THREADS; $L launch --nproc-per-node 2 --role trainer --rdzv-id job --max-restarts 3 sh "
      "-c 'echo $RANK "
      "$LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_NAME $ROLE_RANK "
      "$ROLE_WORLD_SIZE "
      "$MASTER_ADDR $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID "
      "$TORCHELASTIC_USE_AGENT_STORE $TORCHELASTIC_SIGNALS_TO_HANDLE $OMP_NUM_THREADS "
      "${LOCKSTEP_STORE-none}; test $MASTER_PORT -gt 0; "
      "test -d $(dirname $TORCHELASTIC_ERROR_FILE)'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(sorted_lines(outcome.output),
            (std::vector<std::string>{"0 0 2 2 0 1 trainer 0 2 127.0.0.1 0 3 job False "
                                      "SIGTERM,SIGINT,SIGHUP,SIGQUIT 1 none",
                                      "1 1 2 2 0 1 trainer 1 2 127.0.0.1 0 3 job False "
                                      "SIGTERM,SIGINT,SIGHUP,SIGQUIT 1 none"}));
}

// Where a rank may run, by rank: what the kernel says of the started process itself.
std::vector<std::string> bound_to(const std::string& folder, const std::string& before, int ranks,
                                  const std::string& binding) {
  const Outcome outcome = run_shell(
      folder, fmt::format("{} $L launch --nproc-per-node {} --numa-binding {} sh -c 'echo $RANK $(sed -n "
                          "s/Cpus_allowed_list:.//p /proc/self/status)'",
                          before, ranks, binding));
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  return sorted_lines(outcome.output);
}

TEST(Launch, RanksAreBoundToTheProcessorsOfTheirNode) {
  base::TemporaryFolder folder;
  const auto machine = device::read_topology().cpu;
  const std::vector<device::Cpus> first = {machine.nodes[0].cpus, machine.sockets[0],
                                           machine.core_complexes[0]};
  for (const size_t k : {0, 1, 2}) {
    const char* binding = std::array{"node", "socket", "core-complex"}[k];
    EXPECT_EQ(bound_to(folder.path(), "", 1, binding),
              std::vector<std::string>{"0 " + device::cpu_list(device::allowed_of(first[k]))})
        << binding;
  }
}

// hwloc is told of another machine, whose two processors this one has as well: what was chosen is also done.
TEST(Launch, RanksAreSpreadOverTheMachine) {
  if (device::allowed_of({0, 1}).size() < 2) GTEST_SKIP() << "one processor: nothing to choose between";
  base::TemporaryFolder folder;
  struct Row {
    const char *machine, *binding;
    std::vector<std::string> bound;
  };
  const Row rows[] = {
      {"pack:2 numa:1 l3:1 core:1 pu:1", "socket", {"0 0", "1 1"}},
      {"pack:2 numa:1 l3:1 core:1 pu:1", "node", {"0 0", "1 1"}},
      {"pack:1 numa:1 l3:2 core:1 pu:1", "core-complex", {"0 0", "1 1"}},
      {"pack:1 numa:1 l3:2 core:1 pu:1", "node", {"0 0-1", "1 0-1"}},
      {"pack:1 numa:1 l3:1 core:1 pu:2", "core-complex", {"0 0-1", "1 0-1"}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(bound_to(folder.path(), fmt::format("HWLOC_THISSYSTEM=1 HWLOC_SYNTHETIC='{}'", row.machine), 2,
                       row.binding),
              row.bound)
        << row.machine << ", " << row.binding;
  }
}

TEST(Launch, LogsAsTorchrunKeepsThem) {
  base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(),
                "$L launch --nproc-per-node 2 --log-dir logs --rdzv-id job --tee 0:3 --redirects 1:1 sh -c "
                "'echo out $RANK; echo err $RANK >&2'");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(sorted_lines(outcome.output),
            (std::vector<std::string>{"[default0]:err 0", "[default0]:out 0", "err 1"}));
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path() + "/logs")) {
    if (!entry.is_regular_file()) continue;
    const std::string path = entry.path().string();
    files.push_back(path.substr(path.find("attempt_")) + " " + base::read_file(path));
  }
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files,
            (std::vector<std::string>{"attempt_0/0/stderr.log err 0\n", "attempt_0/0/stdout.log out 0\n",
                                      "attempt_0/1/stdout.log out 1\n"}));
}

// The ranks are quiet here, so that the first lines printed are the launcher's.
TEST(Launch, AFailureIsToldInTheFirstTenLines) {
  base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(),
                "time -p $L launch --nproc-per-node 3 --grace 1 --redirects 3 --log-dir logs sh -c "
                "'if [ $RANK = 1 ]; then for k in 1 2 3 4 5 6 7 8 9; do echo line $k >&2; done; kill -SEGV "
                "$$; fi; trap \"\" TERM; "
                "sleep 100; sleep 100'");
  EXPECT_EQ(outcome.code, 1);
  std::vector<std::string> lines = base::split_lines(outcome.output);
  lines.resize(std::min<size_t>(lines.size(), 10));
  const std::string head = base::join(lines, "\n");
  for (const char* part :
       {"rank 1 on ", "killed by SIGSEGV (11)", "local rank 1", "  | line 9", "stderr.log"}) {
    EXPECT_NE(head.find(part), std::string::npos) << part << "\n" << outcome.output;
  }
}

TEST(Launch, TheErrorFileDecidesWhichWasFirst) {
  base::TemporaryFolder folder;
  // Rank 0 dies at once; rank 1 a moment later, but its file says that its trouble is older.
  const Outcome outcome = run_shell(folder.path(),
                                    "$L launch --nproc-per-node 2 --monitor-interval 1 sh -c 'if [ $RANK = 0 "
                                    "]; then exit 4; fi; sleep 0.3; "
                                    "printf \"{\\\"message\\\": {\\\"message\\\": \\\"RuntimeError: the "
                                    "cause\\\", \\\"extraInfo\\\": {\\\"timestamp\\\": "
                                    "\\\"1600000000\\\"}}}\" > $TORCHELASTIC_ERROR_FILE; exit 5'");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("rank 1 on "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("failed first: exit code 5"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("it says: RuntimeError: the cause"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("after it: rank 0 (exit code 4)"), std::string::npos) << outcome.output;
}

TEST(Launch, RestartsWhileTheBudgetLasts) {
  base::TemporaryFolder folder;
  const std::string program =
      "sh -c 'echo try $TORCHELASTIC_RESTART_COUNT port $MASTER_PORT; if [ $RANK = 1 ]; then test "
      "$TORCHELASTIC_RESTART_COUNT = "
      "2; exit; fi'";
  const Outcome good = run_shell(folder.path(), "$L launch --nproc-per-node 2 --max-restarts 2 " + program);
  EXPECT_EQ(good.code, 0) << good.output;
  EXPECT_NE(good.output.find("restarting all ranks; 1 restart left"), std::string::npos) << good.output;
  EXPECT_NE(good.output.find("restarting all ranks; 0 restarts left"), std::string::npos) << good.output;
  std::set<std::string> ports;
  for (const std::string& line : base::split_lines(good.output)) {
    if (line.starts_with("try ")) ports.insert(line);
  }
  EXPECT_EQ(ports.size(), 3u) << "the same port within an attempt:\n" << good.output;
  EXPECT_EQ(run_shell(folder.path(), "$L launch --nproc-per-node 2 --max-restarts 1 " + program).code, 1);
}

// A shell line that starts `ranks` in the background and goes on when each of two has said "up": a busy
// machine takes its time, and what a signal finds half started is another matter.
std::string when_up(const std::string& ranks, const std::string& then) {
  return fmt::format(
      "rm -f out; $L launch {} >out 2>&1 & until [ \"$(grep -sc up out)\" = 2 ]; do sleep 0.05; done; {}; "
      "wait $!; code=$?; cat out; exit $code",
      ranks, then);
}

TEST(Launch, CtrlCIsPassedOnAndASecondOneInsists) {
  base::TemporaryFolder folder;
  const std::string forever = "echo up; while :; do sleep 0.05; done'";
  expect_rows(
      folder.path(),
      {
          // Handled: the ranks' own exit code.
          {when_up("--nproc-per-node 2 sh -c 'trap \"echo saved $RANK; exit 75\" INT TERM; " + forever,
                   "kill -INT $!"),
           75, "saved 1"},
          {when_up("--nproc-per-node 2 sh -c 'trap \"exit 0\" TERM; " + forever, "kill $!"), 0, ""},
          // Not handled: killed by it.
          {when_up("--nproc-per-node 2 sh -c 'echo up; exec sleep 100'", "kill -TERM $!"), 143, ""},
          // Ignored: the second ends them at once.
          {when_up("--nproc-per-node 2 sh -c 'trap \"\" INT; echo up; sleep 100; sleep 100'",
                   "kill -INT $!; sleep 0.3; kill -INT $!"),
           130, "SIGINT again: killing the ranks now"},
          // Ignored, and nobody insists: the grace does.
          {when_up("--nproc-per-node 2 --grace 0.5 sh -c 'trap \"\" TERM; echo up; sleep 100; sleep 100'",
                   "kill $!"),
           143, ""},
      });
}

// Slurm signals every process of a step, its launcher passes the signal on, and so does the task's parent.
TEST(Launch, ARankMayHearSigtermAnyNumberOfTimes) {
  base::TemporaryFolder folder;
  const auto signalled = [](const std::string& name, const std::string& how) {
    return Row{
        fmt::format(
            "$L train run.name={0} run.steps=100000 run.device=cpu model.layers=1 model.hidden=16 "
            "data.seq_len=16 & until test -s runs/{0}/metrics.jsonl; do sleep 0.05; done; {1}; wait $!",
            name, how),
        75, "run the same command again"};
  };
  expect_rows(folder.path(), {signalled("often", "while kill -TERM $!; do :; done 2>/dev/null"),
                              signalled("both", "kill -TERM $!; sleep 0.001; kill -INT $!")});
}

TEST(Launch, NothingIsLeftAfterKillMinusNine) {
  base::TemporaryFolder folder;
  const std::string mark = fmt::format("7777{}", ::getpid());
  const Outcome outcome = run_shell(
      folder.path(),
      fmt::format(
          "count() {{ pgrep -fx 'sleep {0}' | wc -l; }}; "
          "reach() {{ for k in $(seq 100); do test $(count) = $1 && break; sleep 0.1; done; count; }}; "
          "$L launch --grace 0.3 --nproc-per-node 2 sh -c 'setsid sleep {0} & sleep {0} & sleep {0}' "
          ">/dev/null 2>&1 & reach 6; kill -9 $!; reach 0",
          mark));
  EXPECT_EQ(outcome.output, "6\n0\n");
}

// There /proc numbers the processes of another namespace.
TEST(Launch, RanksEndWhereProcIsOfAnotherNamespace) {
  base::TemporaryFolder folder;
  if (run_shell(folder.path(), "unshare -pf true").code != 0) GTEST_SKIP() << "no namespaces here";
  expect_rows(folder.path(), {{"timeout 20 unshare -pf $L launch --nproc-per-node 2 sh -c "
                               "'if [ $RANK = 1 ]; then exit 3; fi; exec sleep 1000'",
                               1, "failed: exit code 3"}});
}

// Several launchers on this machine as nodes of one run.
struct Nodes {
  base::TemporaryFolder folder;
  int port = launch::free_port();
  std::string secret = "export LOCKSTEP_SECRET=correct-horse-battery-staple-correct; ";
  std::string flags(const std::string& more) const {
    return fmt::format("--rdzv-endpoint 127.0.0.1:{} --rdzv-conf join_timeout=20,node_timeout=3 {}", port,
                       more);
  }
};

TEST(Launch, FourNodesMeet) {
  Nodes nodes;
  const std::string flags = nodes.flags("--nnodes 4 --nproc-per-node 2");
  std::string line = nodes.secret;
  for (const int node : {3, 1, 0}) {
    line += fmt::format(
        "$L launch {} --node-rank {} sh -c 'echo rank $RANK node $GROUP_RANK of $WORLD_SIZE' >{}.txt 2>&1 & ",
        flags, node, node);
  }
  line += fmt::format(
      "for k in $(seq 150); do grep -q 'node 2$' 0.txt && break; sleep 0.1; done; "
      "$L launch {} --node-rank 2 sh -c 'echo rank $RANK node $GROUP_RANK of $WORLD_SIZE' >2.txt "
      "2>&1; "
      "wait; cat 0.txt 1.txt 2.txt 3.txt",
      flags);
  const Outcome outcome = run_shell(nodes.folder.path(), line);
  EXPECT_NE(outcome.output.find("waiting for 1 of 4 nodes: node 2"), std::string::npos) << outcome.output;
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_NE(outcome.output.find(fmt::format("rank {} node {} of 8\n", rank, rank / 2)), std::string::npos)
        << outcome.output;
  }
}

TEST(Launch, TheStoreSpeaksTlsWhereAllNodesAskForIt) {
  Nodes nodes;
  const std::string train =
      "$L train model.layers=1 model.hidden=16 model.heads=2 data.seq_len=8 batch.global=4 batch.slices=2 "
      "batch.strands=2 run.steps=2 run.device=cpu log.eval_batches=1 ";
  const std::string flags = nodes.flags("--nnodes 2 --nproc-per-node 1");
  const auto both = [&](const std::string& first, const std::string& second, const std::string& name) {
    return run_shell(
        nodes.folder.path(),
        nodes.secret +
            fmt::format("{0} run.name={1} {2} --node-rank 1 {3} >one.txt 2>&1 & {0} run.name={1} {2} "
                        "--node-rank 0 {4}; code=$?; wait; cat one.txt; exit $code",
                        train, name, flags, second, first));
  };
  const Outcome agreed = both("--rdzv-conf tls=true", "--rdzv-conf tls=true", "tls");
  EXPECT_EQ(agreed.code, 0) << agreed.output;
  EXPECT_NE(agreed.output.find("step 2/2"), std::string::npos) << agreed.output;
  const Outcome apart = both("--rdzv-conf tls=true,join_timeout=4", "--rdzv-conf join_timeout=4", "plain");
  EXPECT_NE(apart.code, 0) << apart.output;
}

// A node 0 waits for others; one comes that does not fit. Both sides say why.
TEST(Launch, NodesThatDoNotFit) {
  Nodes nodes;
  struct Case {
    const char* first;  // flags of node 0
    const char* second;
    const char* second_says;
    const char* first_says;
  };
  const Case cases[] = {
      {"--nnodes 2 --node-rank 0", "$L launch --nnodes 2 --node-rank 0", "[LS0513]", "waiting for 1 of 2"},
      {"--nnodes 2 --node-rank 0", "$L launch --nnodes 3 --node-rank 1", "they must be the same [LS0535]",
       "refused a node"},
      {"--nnodes 3 --rdzv-conf rank=1,is_host=1", "$L launch --nnodes 3 --node-rank 1", "node 1 is already ",
       "refused a node"},
      {"--nnodes 2 --node-rank 0",
       "LOCKSTEP_SECRET=quite-another-secret-of-some-length $L launch --nnodes 2 --node-rank 1", "[LS0515]",
       "secret"},
  };
  for (const Case& one : cases) {
    const std::string where = fmt::format("--rdzv-endpoint 127.0.0.1:{} true", nodes.port);
    const Outcome outcome =
        run_shell(nodes.folder.path(),
                  fmt::format("{}$L launch {} {} >0.txt 2>&1 & sleep 1.3; {} {}; echo code $?; echo ====; "
                              "kill $!; wait; cat 0.txt",
                              nodes.secret, one.first, where, one.second, where));
    const size_t half = outcome.output.find("====");
    ASSERT_NE(half, std::string::npos);
    EXPECT_NE(outcome.output.substr(0, half).find("code 2"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.substr(0, half).find(one.second_says), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.substr(half).find(one.first_says), std::string::npos) << outcome.output;
  }
}

TEST(Launch, NobodyAnswers) {
  Nodes nodes;
  expect_rows(
      nodes.folder.path(),
      {{nodes.secret +
            fmt::format("$L launch --nnodes 2 --node-rank 1 --rdzv-conf join_timeout=1 --rdzv-endpoint "
                        "127.0.0.1:{} true",
                        nodes.port),
        1,
        fmt::format("no response at 127.0.0.1:{0} within 1 s (127.0.0.1:{0}: Connection refused)",
                    nodes.port)},
       {nodes.secret +
            "timeout 3 $L launch --nnodes 2 --node-rank 1 --rdzv-endpoint no-such-host.invalid true",
        124, "waiting for node 0 at no-such-host.invalid:29400 (no-such-host.invalid: "},
       {nodes.secret +
            fmt::format("$L launch --nnodes 2 --node-rank 0 --rdzv-conf join_timeout=1 --rdzv-endpoint "
                        "127.0.0.1:{} true",
                        nodes.port),
        1, "waiting for 1 of 2 nodes: node 1; none joined within 1 s"}});
}

TEST(Launch, AFailureEndsEveryNode) {
  Nodes nodes;
  const std::string flags = nodes.flags("--nnodes 2 --nproc-per-node 2 --grace 1");
  const Outcome outcome = run_shell(
      nodes.folder.path(), fmt::format("{0}$L launch {1} --node-rank 0 sleep 100 >0.txt 2>&1 & $L launch {1} "
                                       "--node-rank 1 sh -c 'test $RANK = 3 && "
                                       "exit 9; sleep 100'; echo code $?; wait $!; echo code $?; cat 0.txt",
                                       nodes.secret, flags));
  EXPECT_EQ(outcome.output.find("rank 3 on "), outcome.output.find("lockstep: ") + 10) << outcome.output;
  size_t reports = 0, codes = 0;
  for (const std::string& line : base::split_lines(outcome.output)) {
    reports += line.find("failed: exit code 9") != std::string::npos;
    codes += line == "code 1";
  }
  EXPECT_EQ(reports, 2u) << "each node says it:\n" << outcome.output;
  EXPECT_EQ(codes, 2u) << outcome.output;
}

// As torchrun counts: a new round for a node that comes takes nothing from the budget.
TEST(Launch, ANodeThatComesIsNoRestart) {
  Nodes nodes;
  const std::string flags =
      nodes.flags("--nnodes 1:2 --rdzv-conf last_call_timeout=1 --max-restarts 3 --grace 1");
  const std::string program =
      "sh -c 'echo $WORLD_SIZE ranks, $TORCHELASTIC_RESTART_COUNT restarts; test $WORLD_SIZE = 2 || sleep "
      "100'";
  expect_rows(nodes.folder.path(),
              {{fmt::format("{0}$L launch {1} --node-rank 0 {2} >0.txt 2>&1 & for k in $(seq 200); do grep "
                            "-q '1 ranks, 0 restarts' 0.txt && break; sleep 0.1; done; $L launch {1} "
                            "--node-rank 1 {2}; wait $!; code=$?; cat 0.txt; exit $code",
                            nodes.secret, flags, program),
                0, "1 ranks, 0 restarts"},
               {"grep -c '2 ranks, 0 restarts' 0.txt", 0, "1"}});
}

TEST(Launch, ALostNodeIsNamed) {
  Nodes nodes;
  const std::string flags = nodes.flags("--nnodes 2 --grace 1");
  for (const int victim : {1, 0}) {
    const Outcome outcome =
        run_shell(nodes.folder.path(),
                  fmt::format("rm -f up; {0}$L launch {1} --node-rank {2} sh -c 'touch up; exec sleep 100' "
                              ">/dev/null 2>&1 & (until test -e up; do sleep 0.1; done; sleep 0.5; kill -9 "
                              "$!) & $L launch {1} --node-rank {3} sleep 100; echo code $?",
                              nodes.secret, flags, victim, 1 - victim));
    EXPECT_NE(outcome.output.find(victim == 1 ? "node 1 on " : "[LS0534]"), std::string::npos)
        << outcome.output;
    EXPECT_NE(outcome.output.find("code 1"), std::string::npos) << outcome.output;
  }
}

}  // namespace
}  // namespace lockstep::cli
