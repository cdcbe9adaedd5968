// What a process becomes, from nothing but its environment; and ranks of our own, which are this very test
// program.
#include "lockstep/launch/start.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/store/store_server.h"
#include "lockstep/launch/agent.h"
#include "lockstep/launch/rendezvous/network.h"
#include "lockstep/launch/rendezvous/rendezvous_point.h"
#include "lockstep/launch/schedulers/rendezvous_file.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

Variable from(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(Start, SeatsFromTheEnvironment) {
  EXPECT_EQ(seat_from_environment(from({})), std::nullopt);
  const auto seat = seat_from_environment(from({{"RANK", "5"},
                                                {"WORLD_SIZE", "8"},
                                                {"LOCAL_RANK", "1"},
                                                {"LOCAL_WORLD_SIZE", "4"},
                                                {"GROUP_RANK", "1"}}));
  ASSERT_TRUE(seat);
  EXPECT_EQ(seat->rank, 5);
  EXPECT_EQ(seat->node, 1);
  EXPECT_EQ(seat->nodes, 2);
  const std::map<std::string, std::string> wrong[] = {
      {{"RANK", "0"}},
      {{"WORLD_SIZE", "2"}},
      {{"RANK", "2"}, {"WORLD_SIZE", "2"}},
      {{"RANK", "-1"}, {"WORLD_SIZE", "2"}},
      {{"RANK", "x"}, {"WORLD_SIZE", "2"}},
      {{"RANK", ""}, {"WORLD_SIZE", "2"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", "2"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "4"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}},
  };
  for (const auto& variables : wrong) {
    EXPECT_THROW(seat_from_environment(from(variables)), base::ConfigError) << variables.begin()->second;
  }
}

// With these words this program is a rank: the one disabled test below.
std::vector<std::string> rank_arguments() {
  return {"--gtest_also_run_disabled_tests", "--gtest_brief=1", "--gtest_filter=Start.DISABLED_Rank"};
}

// All ranks add their number through the store they were given; each says what it saw.
int be_a_rank(const std::string& log_folder) {
  Start me = start({}, log_folder, [](const std::string& text) { std::fputs(text.c_str(), stderr); });
  if (me.exit_code) return *me.exit_code;
  if (!me.store) return 99;
  const comm::Seat& seat = me.options.seat;
  me.store->add("sum", seat.rank + 1);
  me.store->add("came", 1);
  while (me.store->try_get("came").value_or("") != std::to_string(seat.world)) ::usleep(5000);
  std::printf("rank %d of %d local %d of %d sum %s omp %s\n", seat.rank, seat.world, seat.local_rank,
              seat.local_world, me.store->try_get("sum")->c_str(),
              std::getenv("OMP_NUM_THREADS") ? std::getenv("OMP_NUM_THREADS") : "-");
  std::fflush(stdout);
  if (const char* victim = std::getenv("TEST_VICTIM"); victim && std::atoi(victim) == seat.rank)
    ::kill(::getpid(), SIGSEGV);
  if (std::getenv("TEST_VICTIM")) ::sleep(100);
  return 0;
}

// Run by the tests below, in other processes.
TEST(Start, DISABLED_Rank) { std::_Exit(be_a_rank(std::getenv("TEST_LOGS"))); }

std::string rank_words() {
  return std::filesystem::read_symlink("/proc/self/exe").string() + " " + base::join(rank_arguments(), " ");
}

struct Shell {
  base::TemporaryFolder folder;
  std::string output;
  int run(const std::string& line) {
    const std::string whole = fmt::format("exec 2>&1; cd {0}; export TEST_LOGS={0}/logs R='{1}'; {2}",
                                          folder.path(), rank_words(), line);
    std::FILE* pipe = ::popen(whole.c_str(), "r");
    output.clear();
    char bytes[4096];
    while (const size_t got = std::fread(bytes, 1, sizeof bytes, pipe)) output.append(bytes, got);
    const int status = ::pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  bool says(const std::string& text) const { return output.find(text) != std::string::npos; }
};

AgentJob own_job(const std::string& logs, int ranks, std::string* said) {
  AgentJob job;
  job.options.grace = Duration(1000);
  job.ranks = ranks, job.own_program = true, job.log_folder = logs;
  job.options.signals = {SIGTERM, SIGINT};
  job.command = own_command(rank_arguments());
  job.say = [said](const std::string& text) { *said += text; };
  return job;
}

TEST(Start, OurOwnRanksShareAStore) {
  base::TemporaryFolder folder;
  const std::string logs = folder.path() + "/logs";
  ::setenv("TEST_LOGS", logs.c_str(), 1);
  std::string said;
  EXPECT_EQ(run_agent(own_job(logs, 3, &said)), 0) << said;
  for (const int rank : {0, 1, 2}) {
    const std::string log = base::read_file(fmt::format("{}/attempt-0/rank-{}.log", logs, rank));
    EXPECT_NE(log.find(fmt::format("rank {0} of 3 local {0} of 3 sum 6", rank)), std::string::npos) << log;
  }
  EXPECT_EQ(run_agent(own_job(logs, 2, &said)), 0) << said;
  EXPECT_TRUE(std::filesystem::exists(logs + "/attempt-1/rank-1.log")) << "a second run has logs of its own";
}

TEST(Start, AFailingRankOfOursIsNamed) {
  base::TemporaryFolder folder;
  const std::string logs = folder.path() + "/logs";
  ::setenv("TEST_LOGS", logs.c_str(), 1);
  ::setenv("TEST_VICTIM", "1", 1);
  std::string said;
  AgentJob job = own_job(logs, 2, &said);
  job.options.max_restarts = 1;
  EXPECT_EQ(run_agent(job), 1);
  ::unsetenv("TEST_VICTIM");
  EXPECT_NE(said.find("rank 1 on "), std::string::npos) << said;
  EXPECT_NE(said.find("killed by SIGSEGV (11)"), std::string::npos) << said;
  EXPECT_NE(said.find("logs/attempt-1/rank-1.log"), std::string::npos) << "the second attempt too:\n" << said;
}

TEST(Start, ForeignRanksOfOneMachineFindEachOther) {
  Shell shell;
  const std::string ranks =
      "for r in 0 1 2; do TORCHELASTIC_RUN_ID=x MASTER_ADDR=127.0.0.1 MASTER_PORT=1 RANK=$r WORLD_SIZE=3 "
      "LOCAL_RANK=$r LOCAL_WORLD_SIZE=3 $R & done; wait";
  EXPECT_EQ(shell.run(ranks), 0);
  for (const int rank : {0, 1, 2}) EXPECT_TRUE(shell.says(fmt::format("rank {} of 3", rank))) << shell.output;
  EXPECT_TRUE(shell.says("sum 6")) << shell.output;
}

TEST(Start, ForeignRanksOfSeveralMachinesNeedASecret) {
  Shell shell;
  const std::string ranks =
      "for r in 0 1; do MASTER_ADDR=127.0.0.1 MASTER_PORT=$$ RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 "
      "LOCAL_WORLD_SIZE=1 GROUP_RANK=$r $R & done; wait";
  EXPECT_EQ(shell.run("export LOCKSTEP_SECRET=some-secret-that-is-long-enough-for-us; " + ranks), 0);
  EXPECT_TRUE(shell.says("rank 1 of 2 local 0 of 1 sum 3")) << shell.output;
}

// One task a rank, as mpirun starts them: each runs the launcher of its rank, and task 0's leads.
std::string mpi_tasks(int tasks) {
  return fmt::format(
      "for r in $(seq 0 {0}); do OMPI_COMM_WORLD_SIZE={1} OMPI_COMM_WORLD_RANK=$r "
      "OMPI_COMM_WORLD_LOCAL_SIZE={1} "
      "OMPI_COMM_WORLD_LOCAL_RANK=$r OMPI_MCA_orte_num_nodes=1 OMPI_MCA_ess_base_jobid=$$ PMIX_NAMESPACE=$$ "
      "$R > task$r.txt 2>&1 & eval pid$r=$!; done; ",
      tasks - 1, tasks);
}

TEST(Start, TasksOfASchedulerMeet) {
  Shell shell;
  EXPECT_EQ(shell.run(mpi_tasks(3) +
                      "wait $pid0; a=$?; wait $pid1; b=$?; wait $pid2; echo codes $a $b $?; cat logs/*/*"),
            0);
  EXPECT_TRUE(shell.says("codes 0 0 0")) << shell.output;
  for (const int rank : {0, 1, 2})
    EXPECT_TRUE(shell.says(fmt::format("rank {} of 3 local {} of 3 sum 6", rank, rank))) << shell.output;
}

// On a shared node, another run has the first port that the job's nodes derive, and some program the second.
TEST(Start, NodesOfASchedulerMeetBesideOtherRuns) {
  // A job of which nobody here has a port yet.
  int64_t job = int64_t{1000} * ::getpid();
  std::vector<int> ports;
  do {
    ports = agreed_point("127.0.0.1", fmt::format("Slurm {}.0 start ", ++job)).ports;
  } while (!std::all_of(ports.begin(), ports.end(), port_is_free));
  comm::StoreServer another({.port = ports[0], .secret = comm::Secret::random(), .run = "another"});
  const comm::StoreServer dumb({.port = ports[1], .secret = comm::Secret::random(), .tls = true});
  Shell shell;
  const std::string nodes = fmt::format(
      "export PET_RDZV_CONF=join_timeout=60 LOCKSTEP_SECRET=some-secret-that-is-long-enough-for-us "
      "SLURM_JOB_ID={0} SLURM_STEP_ID=0 "
      "SLURM_NNODES=2 SLURM_NTASKS=2 SLURM_JOB_NODELIST=127.0.0.1,127.0.0.1 SLURM_LOCALID=0; "
      "for r in 1 0; do SLURM_PROCID=$r SLURM_NODEID=$r $R > node$r.txt 2>&1 & sleep 1; done; wait; "
      "cat node*.txt logs/*/*",
      job);
  EXPECT_EQ(shell.run(nodes), 0);
  for (const int rank : {0, 1})
    EXPECT_TRUE(shell.says(fmt::format("rank {} of 2 local 0 of 1 sum 3", rank))) << shell.output;
  EXPECT_EQ(another.connections(), 0);
}

TEST(Start, AKilledTaskIsNamed) {
  Shell shell;
  shell.run("export TEST_VICTIM=9; " + mpi_tasks(3) +
            "until grep -qs 'rank 1 of 3' logs/attempt-0/rank-1.log; do sleep 0.1; done; kill -9 $pid1; wait "
            "$pid0; echo code $?; wait $pid2; cat task0.txt");
  EXPECT_TRUE(shell.says("failed: its task was killed")) << shell.output;
  EXPECT_TRUE(shell.says("rank 1 on ")) << shell.output;
  EXPECT_TRUE(shell.says("code 1")) << shell.output;
  EXPECT_FALSE(shell.says("restarting all ranks")) << "nobody can start a scheduler's task again\n"
                                                   << shell.output;
}

TEST(Start, AFailingRankBelowATaskIsStartedAgain) {
  Shell shell;
  shell.run("export TEST_VICTIM=2 PET_MAX_RESTARTS=1; " + mpi_tasks(3) +
            "wait $pid0; echo code $?; wait $pid2; cat task0.txt");
  EXPECT_TRUE(shell.says("code 1")) << shell.output;
  EXPECT_TRUE(shell.says("restarting all ranks; 0 restarts left")) << shell.output;
  EXPECT_TRUE(shell.says("killed by SIGSEGV (11)")) << shell.output;
  EXPECT_TRUE(shell.says("attempt-1/rank-2.log")) << shell.output;
  EXPECT_TRUE(shell.says("\n  | rank 2 of 3")) << shell.output;
}

TEST(StoreAddress, OnlyForOurselves) {
  base::TemporaryFolder folder;
  const Variable variable = from({{"XDG_RUNTIME_DIR", folder.path()}});
  const std::string path = runtime_folder(variable);
  EXPECT_EQ(path, folder.path() + "/lockstep");
  EXPECT_EQ(runtime_folder(variable), path);
  std::filesystem::permissions(path, std::filesystem::perms::all);
  EXPECT_THROW(runtime_folder(variable), base::ConfigError) << "others may enter it";
  std::filesystem::remove(path);
  std::filesystem::create_symlink(folder.path(), path);
  EXPECT_THROW(runtime_folder(variable), base::ConfigError) << "a link to somewhere";
  const std::string job = fmt::format("test-{}", ::getpid());
  EXPECT_THROW(await_rendezvous_file(job, 50ms), base::CommError);
  {
    const StoreAddress sent{"127.0.0.1:7", comm::Secret::random()};
    const RendezvousFile file(job, sent);
    const StoreAddress got = await_rendezvous_file(job, 1s);
    EXPECT_EQ(got.endpoint, sent.endpoint);
    EXPECT_EQ(got.secret.bytes(), sent.secret.bytes());
  }
  EXPECT_THROW(await_rendezvous_file(job, 50ms), base::CommError) << "taken away";
}

}  // namespace
}  // namespace lockstep::launch
