#include "lockstep/launch/schedulers/scheduled.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/launch/rendezvous/network.h"
#include "lockstep/launch/rendezvous/run_store.h"
#include "lockstep/launch/schedulers/node_address.h"

namespace lockstep::launch {

void take_scheduled(Words& words, const Scheduled& scheduled) {
  const auto fill = [](std::string& word, const std::string& value) {
    if (word.empty()) word = value;
  };
  if (scheduled.nodes > 1 && words.nnodes.empty()) {
    words.nnodes = scheduled.fewest_nodes < scheduled.nodes
                       ? fmt::format("{}:{}", scheduled.fewest_nodes, scheduled.nodes)
                       : std::to_string(scheduled.nodes);
    if (scheduled.node >= 0) fill(words.node_rank, std::to_string(scheduled.node));
    if (!scheduled.first_host.empty() && words.rdzv_endpoint.empty()) {
      words.rdzv_endpoint = first_host(scheduled);
      words.agreed_for = scheduled.port > 0 ? "" : scheduled.agreed_for;
      if (scheduled.port > 0) words.rdzv_endpoint = endpoint_text(words.rdzv_endpoint, scheduled.port);
    }
  }
  fill(words.rdzv_id, scheduled.job);
  if (scheduled.kind == TaskKind::one_a_node) fill(words.nproc_per_node, scheduled.ranks_per_node);
}

AgentJob job_of_task(const Scheduled& scheduled, const Words& given) {
  Words words = given;
  const auto refuse = [&](const std::string& flag, const std::string& why) {
    throw base::ConfigError(
        553,
        fmt::format("{}: {} already starts one task for each of {} ranks; {}, or start one task per node",
                    flag, scheduled.scheduler, scheduled.tasks, why));
  };
  if (!words.nproc_per_node.empty() && words.nproc_per_node != "1")
    refuse("--nproc " + words.nproc_per_node, "omit --nproc");
  words.nproc_per_node = "1";
  AgentJob job;
  job.options = read_options(words);
  if (job.options.min_nodes != job.options.max_nodes) refuse("--nnodes " + words.nnodes, "omit --nnodes");
  const bool one_machine = job.options.endpoint_host.empty();
  // The store sits on the first node, where it has a number; else on the machine that the endpoint names.
  const bool first = scheduled.node >= 0 ? scheduled.node == 0 : is_this_machine(job.options.endpoint_host);
  if (!one_machine) job.options.is_host = first && scheduled.local_task == 0;
  job.options.min_nodes = job.options.max_nodes = scheduled.tasks;
  job.task = AgentJob::Task{scheduled.task, scheduled.local_task,
                            scheduled.node >= 0 ? std::to_string(scheduled.node) : base::host_name(),
                            one_machine ? scheduled.job : ""};
  return job;
}

}  // namespace lockstep::launch
