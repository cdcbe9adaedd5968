// What the scheduler that started this process says about it, read from the environment alone.
//
//     if (const auto place = read_environment(this_environment())) ...   // under srun: node 1 of 4, task 5
//     of 16
//
// Slurm, Open MPI, PBS, Vertex AI, Kubeflow's PyTorchJob, TPU VMs, SageMaker and Azure ML are known; each is
// one reader in environment.cc's table. Nothing is asked of the network, so that every node comes to the same
// answer by itself. An ordinary shell, also one inside salloc or a batch script, is no task: the answer is
// nothing.
//
// ConfigError 540 names variables that are missing beside those that are set, 541 variables that contradict
// each other, 542 a variable that cannot be read.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

using Environment = std::map<std::string, std::string>;
Environment this_environment();

enum class TaskKind {
  one_a_rank,  // each task is to be a rank; the lowest of a node starts the agent, the others wait for it
  one_a_node,  // the task is the agent
};

struct Scheduled {
  std::string scheduler;  // "Slurm", "Open MPI", "PBS", "Vertex AI", "Kubeflow", ...
  std::string job;        // the same on every task of this run and no other
  TaskKind kind = TaskKind::one_a_node;

  int nodes = 1;
  int fewest_nodes = 1;  // less than `nodes` in an elastic job
  int node = 0;          // -1: not told; the rendezvous assigns numbers, by lowest task
  int task = 0, tasks = 1;
  int local_task = 0, node_tasks = 1;  // among the tasks of this node

  std::string first_host;  // of node 0; empty: not told, so --rdzv-endpoint is needed if there are more nodes
  int port = 0;            // given by the scheduler; 0: the nodes derive ports from `agreed_for`
  // What all tasks know, and no other job. An earlier start of this job knows it, too, save in Slurm, which
  // counts its starts: a store of that start may still be there for a moment.
  std::string agreed_for;
  std::vector<std::string> hosts;  // by node, where they are told

  std::string ranks_per_node;  // what the scheduler asks for: "4", "gpu", "auto"; empty: nothing
  std::string gpus;            // those of this task, as in CUDA_VISIBLE_DEVICES; empty: nothing said
};

// Text of a file, or nothing; PBS and SageMaker need it.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> read_small_file(const std::string& path);

std::optional<Scheduled> read_environment(const Environment& environment,
                                          const FileReader& read = read_small_file);

}  // namespace lockstep::launch
