// SageMaker and Azure Machine Learning: one container per machine, and the process in it is the agent.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/launch/schedulers/environment_readers.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;
constexpr const char* kResources = "/opt/ml/input/config/resourceconfig.json";

struct Machines {
  std::string where;  // for messages: the variable or the file
  std::string current;
  std::vector<std::string> hosts;
};

[[noreturn]] void refuse(const Variables& job, const Machines& machines, const std::string& why) {
  job.contradict(fmt::format("{} {}", machines.where, why));
}

std::vector<std::string> host_names(const json& list) {
  std::vector<std::string> names;
  for (const json& one : list.is_array() ? list : json::array()) {
    if (!one.is_string() || one.get<std::string>().empty()) return {};
    names.push_back(one);
  }
  return names;
}

// The training toolkit writes SM_*; every container, with the toolkit or without, has the file.
std::optional<Machines> sagemaker_machines(const Variables& job, const FileReader& read) {
  if (job.has("SM_HOSTS")) {
    job.require({"SM_HOSTS", "SM_CURRENT_HOST"});
    return Machines{"SM_HOSTS", job.text("SM_CURRENT_HOST"),
                    host_names(json::parse(job.text("SM_HOSTS"), nullptr, false))};
  }
  const std::optional<std::string> text = read(kResources);
  if (!text) return std::nullopt;
  const json file = json::parse(*text, nullptr, false);
  Machines machines{kResources, "", {}};
  if (file.is_object() && file.contains("hosts")) machines.hosts = host_names(file["hosts"]);
  if (file.is_object() && file.contains("current_host") && file["current_host"].is_string())
    machines.current = file["current_host"];
  return machines;
}

}  // namespace

// Hosts are algo-1, algo-2, ...; the lowest hosts the rendezvous.
std::optional<Scheduled> read_sagemaker(const Environment& environment, const FileReader& read) {
  const Variables job("SageMaker", environment);
  if (job.first_of({"SM_HOSTS", "TRAINING_JOB_NAME"}).empty()) return std::nullopt;
  std::optional<Machines> machines = sagemaker_machines(job, read);
  if (!machines) return std::nullopt;
  if (machines->hosts.empty()) refuse(job, *machines, "names no hosts");
  std::ranges::sort(machines->hosts, {},
                    [](const std::string& name) { return std::pair(name.size(), name); });
  const auto here = std::ranges::find(machines->hosts, machines->current);
  if (here == machines->hosts.end())
    refuse(job, *machines, fmt::format("does not name this host, {}", base::quoted(machines->current)));
  Scheduled to = one_a_node("SageMaker", static_cast<int>(machines->hosts.size()),
                            static_cast<int>(here - machines->hosts.begin()));
  to.hosts = machines->hosts;
  to.first_host = to.hosts.front();
  to.job = job.has("TRAINING_JOB_NAME") ? job.text("TRAINING_JOB_NAME") : to.first_host;
  to.agreed_for = "SageMaker " + to.job;
  if (job.has("SM_NUM_GPUS") && job.number("SM_NUM_GPUS") > 0) to.ranks_per_node = job.text("SM_NUM_GPUS");
  return to;
}

// `distribution: {type: pytorch}` writes torchrun's variables for each process. A process that is alone on
// its machine is the launcher there; several per machine have been dealt their ranks, and are read as
// torchrun's.
std::optional<Scheduled> read_azureml(const Environment& environment, const FileReader&) {
  const Variables job("Azure ML", environment);
  if (!job.has("AZUREML_RUN_ID") || !job.has("NODE_RANK") || !job.has("MASTER_ADDR")) return std::nullopt;
  job.require({"WORLD_SIZE", "MASTER_PORT"});
  const int world = job.number("WORLD_SIZE");
  const std::vector<std::string> hosts =
      job.has("AZ_BATCH_HOST_LIST") ? split(job.text("AZ_BATCH_HOST_LIST"), ',') : std::vector<std::string>{};
  const bool alone = hosts.empty() ? !job.has("LOCAL_RANK") : hosts.size() == static_cast<size_t>(world);
  if (!alone) return std::nullopt;
  job.require_below("NODE_RANK", "WORLD_SIZE");
  Scheduled to = one_a_node("Azure ML", world, job.number("NODE_RANK"));
  to.hosts = hosts;
  to.first_host = job.text("MASTER_ADDR");
  to.job = job.text("AZUREML_RUN_ID");
  to.port = job.number("MASTER_PORT");
  if (to.port < 1 || to.port > 65535) job.unreadable("MASTER_PORT", "is not a port");
  return to;
}

}  // namespace lockstep::launch
