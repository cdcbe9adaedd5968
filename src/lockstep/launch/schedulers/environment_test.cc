// Environments, and what each must be read as.
#include "lockstep/launch/schedulers/environment.h"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/schedulers/environment_readers.h"
#include "lockstep/launch/schedulers/environment_samples.h"

namespace lockstep::launch {
namespace {

// Lines of NAME=value.
Environment from_text(std::string_view text) {
  Environment environment;
  for (const std::string& line : base::split_lines(text)) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) environment[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return environment;
}

std::optional<std::string> no_file(const std::string&) { return std::nullopt; }

struct Case {
  std::string name, environment;
  std::string expected;  // "scheduler job kind nodes/node tasks/task node_tasks/local_task host"
  std::string nodefile = {};
};

std::string summary(const std::optional<Scheduled>& place) {
  if (!place) return "shell";
  std::string text = place->scheduler + " " + place->job;
  text += place->kind == TaskKind::one_a_rank ? " ranks " : " agent ";
  const auto pair = [](int whole, int part) {
    return std::to_string(whole) + "/" + std::to_string(part) + " ";
  };
  text += pair(place->nodes, place->node) + pair(place->tasks, place->task);
  return text + pair(place->node_tasks, place->local_task) + place->first_host;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> rows = {
      {"nothing", "HOME=/root\nRANK=3\nWORLD_SIZE=4", "shell"},
      {"slurm_uneven", kSlurmUneven, "Slurm 1.0 ranks 2/0 4/2 3/2 n1"},
      {"slurm_agents", kSlurmAgents, "Slurm 3.0 agent 2/1 2/1 1/0 n1"},
      {"slurm_het", kSlurmHet, "Slurm 1.0 ranks 3/1 5/3 1/0 n3"},
      {"slurm_het_part", kSlurmHetPart, "Slurm 1.1 agent 2/1 2/1 1/0 n1"},
      {"slurm_gpu_tasks", kSlurmGpuTasks, "Slurm 4.0 ranks 2/0 4/1 3/1 n1"},
      {"slurm_step_in_job", kSlurmStepInJob, "Slurm 5.0 ranks 1/0 2/1 2/1 n1"},
      {"salloc_shell", kSallocShell, "shell"},
      {"batch_shell", kBatchShell, "shell"},
      {"interactive_step", std::string(kBatchShell) + "\nSLURM_STEP_ID=4294967290", "shell"},
      {"batch_step", std::string(kBatchShell) + "\nSLURM_STEP_ID=4294967291", "shell"},
      {"open_mpi", kOpenMpi, "Open MPI 613220353 ranks 1/0 2/1 2/1 localhost"},
      {"open_mpi_two_hosts", kOpenMpiTwoHosts, "Open MPI 613220353 ranks 2/-1 4/3 1/0 10.0.0.1"},
      {"open_mpi_in_slurm", std::string(kOpenMpiTwoHosts) + "\n" + kSlurmAgents,
       "Open MPI 613220353 ranks 2/-1 4/3 1/0 n1"},
      {"vertex", kVertex, "Vertex AI 1234567890 agent 3/2 3/2 1/0 cmle-training-workerpool0-5a3c-0"},
      {"kubeflow", kKubeflow, "Kubeflow job-master-0 agent 3/2 3/2 1/0 job-master-0"},
      {"kubeflow_old", kKubeflowOld, "Kubeflow job-master-0 agent 2/0 2/0 1/0 job-master-0"},
      {"kubeflow_elastic", kKubeflowElastic, "Kubeflow job agent 3/-1 3/0 1/0 job-worker-0"},
      {"kubeflow_rank", std::string(kKubeflow) + "\nLOCAL_RANK=0", "shell"},
      {"tpu", kTpu, "TPU VM 10.164.0.2 agent 4/3 4/3 1/0 10.164.0.2"},
      {"tpu_slices", kTpuSlices, "TPU VM job-slice-0-0.job agent 4/3 4/3 1/0 job-slice-0-0.job"},
      {"sagemaker", kSageMaker, "SageMaker first-abc123 agent 3/2 3/2 1/0 algo-1"},
      {"sagemaker_file", "TRAINING_JOB_NAME=first-abc123", "SageMaker first-abc123 agent 2/1 2/1 1/0 algo-1",
       kResourceConfig},
      {"azureml", kAzureMl, "Azure ML calm_sky_1 agent 2/1 2/1 1/0 10.0.0.4"},
      {"azureml_ranks", std::string(kAzureMl) + "\nWORLD_SIZE=8", "shell"},
      {"azureml_one_task", "AZUREML_RUN_ID=calm_sky_1", "shell"},
      {"pbs", kPbs, "PBS 17.head agent 2/1 2/1 1/0 a", "a\na\nb\nb\n"},
      {"pbs_script", "PBS_JOBID=17.head\nPBS_NODEFILE=/x\nPBS_NODENUM=0\nPBS_TASKNUM=1", "shell", "a\nb\n"},
      {"torque", kTorque, "PBS 18.head ranks 2/1 4/3 2/1 a", "a\na\nb\nb\n"},
  };
  return rows;
}

TEST(Environment, RecordedOnesAreReadAsWhatTheyAre) {
  for (const Case& row : cases()) {
    const FileReader read = [&](const std::string&) { return std::optional(row.nodefile); };
    EXPECT_EQ(summary(read_environment(from_text(row.environment), read)), row.expected) << row.name;
  }
}

// Of every recorded task, any variable may be gone or spoilt: an error of ours, or an answer that holds
// together.
TEST(Environment, ASpoiltOneIsAnErrorOrMakesSense) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> spoils = {
      "",     "-1",     "x",           "0",         "1", "999999", "99999999999999999999",
      "n[1-", "n[2-1]", "n[1-999999]", "1(x",       "{", "[]",     "a,,b",
      ":",    "a:b",    "\n",          "1(x999999)"};
  for (const Case& row : cases()) {
    const FileReader read = [&](const std::string&) { return std::optional(row.nodefile); };
    const Environment whole = from_text(row.environment);
    for (int round = 0; round < 200; ++round) {
      Environment environment = whole;
      for (uint64_t times = 1 + random() % 2; times > 0; --times) {
        std::next(environment.begin(), static_cast<long>(random() % environment.size()))->second =
            spoils[random() % spoils.size()];
      }
      try {
        const std::optional<Scheduled> place = read_environment(environment, read);
        if (!place) continue;
        const std::string what = row.name + ": " + summary(place);
        EXPECT_LT(place->node, place->nodes) << what;
        EXPECT_GE(place->node, -1) << what;
        EXPECT_LT(place->task, place->tasks) << what;
        EXPECT_GE(place->task, 0) << what;
        EXPECT_LT(place->local_task, place->node_tasks) << what;
        EXPECT_LE(place->node_tasks, place->tasks) << what;
        EXPECT_LE(place->fewest_nodes, place->nodes) << what;
        EXPECT_TRUE((place->port >= 1 && place->port <= 65535) || !place->agreed_for.empty()) << what;
      } catch (const base::ConfigError& error) {
        EXPECT_TRUE(error.number() >= 540 && error.number() <= 542) << error.what();
      }
    }
  }
}

struct Fault {
  std::string environment;
  std::string without, with;  // a variable taken away; NAME=value put in
  int number;
  std::vector<std::string> named;
};

TEST(Environment, FaultsNameTheVariables) {
  const std::vector<Fault> faults = {
      {kSlurmUneven, "SLURM_PROCID", "", 540, {"SLURM_PROCID is missing", "SLURM_LOCALID"}},
      {kSlurmUneven, "SLURM_NODEID", "", 540, {"SLURM_NODEID"}},
      {kSlurmUneven, "", "SLURM_PROCID=4", 541, {"SLURM_PROCID=\"4\"", "SLURM_STEP_NUM_TASKS=\"4\""}},
      {kSlurmUneven, "", "SLURM_NODEID=2", 541, {"SLURM_NODEID=\"2\""}},
      {kSlurmUneven, "", "SLURM_LOCALID=3", 541, {"SLURM_LOCALID=\"3\"", "3 tasks"}},
      {kSlurmUneven, "", "SLURM_STEP_TASKS_PER_NODE=2(x2),1", 541, {"SLURM_STEP_TASKS_PER_NODE", "3 nodes"}},
      {kSlurmUneven, "", "SLURM_STEP_TASKS_PER_NODE=3,2", 541, {"does not add up", "SLURM_STEP_NUM_TASKS"}},
      {kSlurmUneven, "", "SLURM_STEP_TASKS_PER_NODE=3;1", 542, {"SLURM_STEP_TASKS_PER_NODE=\"3;1\""}},
      {kSlurmUneven, "", "SLURM_STEP_NODELIST=n[1-3]", 541, {"lists 3 nodes", "SLURM_STEP_NUM_NODES"}},
      {kSlurmUneven, "", "SLURM_STEP_NODELIST=n[1-", 542, {"SLURM_STEP_NODELIST=\"n[1-\""}},
      {kSlurmUneven, "", "SLURM_STEP_NUM_TASKS=four", 542, {"SLURM_STEP_NUM_TASKS=\"four\""}},
      {kSlurmUneven, "", "SLURM_STEP_ID=0x1", 542, {"SLURM_STEP_ID=\"0x1\""}},
      {kOpenMpi,
       "OMPI_COMM_WORLD_SIZE",
       "",
       540,
       {"OMPI_COMM_WORLD_SIZE is missing beside OMPI_COMM_WORLD_RANK"}},
      {kOpenMpi, "", "OMPI_COMM_WORLD_RANK=2", 541, {"OMPI_COMM_WORLD_RANK=\"2\""}},
      {kOpenMpi, "", "OMPI_COMM_WORLD_LOCAL_SIZE=3", 541, {"OMPI_COMM_WORLD_LOCAL_SIZE=\"3\""}},
      {kVertex, "", "CLUSTER_SPEC={\"cluster\": 1", 542, {"CLUSTER_SPEC"}},
      {kVertex, "", "CLUSTER_SPEC=[1]", 542, {"CLUSTER_SPEC"}},
      {kVertex,
       "",
       R"(CLUSTER_SPEC={"cluster":{"workerpool0":["a:1"]},"task":{"type":"workerpool2","index":0}})",
       541,
       {"\"workerpool2\" 0"}},
      {kVertex,
       "",
       R"(CLUSTER_SPEC={"cluster":{"workerpool0":["a:x"]},"task":{"type":"workerpool0","index":0}})",
       542,
       {"\"a:x\""}},
      {kVertex,
       "",
       R"(CLUSTER_SPEC={"cluster":{"workerpool0":[1]},"task":{"type":"workerpool0","index":0}})",
       542,
       {"not a string"}},
      {kKubeflow, "PET_NODE_RANK", "", 540, {"PET_NODE_RANK is missing"}},
      {kKubeflow, "", "PET_NODE_RANK=3", 541, {"PET_NODE_RANK=\"3\" is not below PET_NNODES=\"3\""}},
      {kKubeflow, "", "PET_MASTER_PORT=70000", 542, {"PET_MASTER_PORT"}},
      {kKubeflowElastic, "", "PET_NNODES=3:1", 542, {"PET_NNODES=\"3:1\""}},
      {kTpu, "TPU_WORKER_ID", "", 540, {"TPU_WORKER_ID is missing beside TPU_WORKER_HOSTNAMES"}},
      {kTpu, "", "TPU_WORKER_ID=4", 541, {"TPU_WORKER_ID=\"4\"", "4 hosts"}},
      {kTpu, "", "TPU_WORKER_HOSTNAMES=a,,b", 542, {"TPU_WORKER_HOSTNAMES"}},
      {kTpuSlices, "MEGASCALE_SLICE_ID", "", 540, {"MEGASCALE_SLICE_ID"}},
      {kSageMaker, "SM_CURRENT_HOST", "", 540, {"SM_CURRENT_HOST is missing beside SM_HOSTS"}},
      {kSageMaker, "", "SM_CURRENT_HOST=algo-3", 541, {"SM_HOSTS does not name this host, \"algo-3\""}},
      {kSageMaker, "", "SM_HOSTS=[1]", 541, {"names no hosts"}},
      {kAzureMl, "MASTER_PORT", "", 540, {"MASTER_PORT is missing beside WORLD_SIZE"}},
      {kAzureMl, "", "NODE_RANK=2", 541, {"NODE_RANK=\"2\" is not below WORLD_SIZE=\"2\""}},
      {kAzureMl, "", "MASTER_PORT=0", 542, {"MASTER_PORT"}},
      {kPbs, "PBS_NODENUM", "", 540, {"PBS_NODENUM"}},
      {kPbs, "", "PBS_NODENUM=0", 542, {"PBS_NODEFILE", "shared folder"}},
  };
  for (const Fault& fault : faults) {
    Environment environment = from_text(fault.environment);
    environment.erase(fault.without);
    for (const auto& [name, value] : from_text(fault.with)) environment[name] = value;
    const std::string label = fault.without + fault.with;
    try {
      ADD_FAILURE() << label << " was read as " << summary(read_environment(environment, no_file));
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), fault.number) << label << ": " << error.what();
      for (const std::string& name : fault.named) {
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << label << ": " << error.what();
      }
    }
  }
}

TEST(Environment, AllTasksOfAJobMeetWhereNoOtherJobDoes) {
  Environment other = from_text(kSlurmUneven);
  other["SLURM_PROCID"] = "3";
  other["SLURM_NODEID"] = "1";
  other["SLURM_LOCALID"] = "0";
  const auto one = read_environment(from_text(kSlurmUneven)), two = read_environment(other);
  EXPECT_EQ(one->agreed_for, two->agreed_for);
  EXPECT_FALSE(one->agreed_for.empty());
  EXPECT_EQ(one->job, two->job);
  other["SLURM_STEP_ID"] = "1";  // another step of the job may run beside it
  EXPECT_NE(read_environment(other)->agreed_for, one->agreed_for);
  other["SLURM_STEP_ID"] = from_text(kSlurmUneven)["SLURM_STEP_ID"];
  EXPECT_EQ(read_environment(other)->agreed_for, one->agreed_for);
  other["SLURM_RESTART_COUNT"] = "1";  // what the first start left may still be ending
  EXPECT_NE(read_environment(other)->agreed_for, one->agreed_for);
  EXPECT_EQ(read_environment(from_text(kVertex))->port, 2222);
  EXPECT_EQ(read_environment(from_text(kKubeflow))->port, 23456);
}

TEST(Environment, SaysWhichGpusAreBound) {
  const auto agents = read_environment(from_text(kSlurmAgents)),
             tasks = read_environment(from_text(kSlurmGpuTasks));
  EXPECT_EQ(agents->gpus, "0,1");
  EXPECT_EQ(tasks->gpus, "1");
  EXPECT_EQ(read_environment(from_text(kKubeflow))->ranks_per_node, "gpu");
  EXPECT_EQ(read_environment(from_text(kKubeflowElastic))->fewest_nodes, 1);
}

}  // namespace
}  // namespace lockstep::launch
