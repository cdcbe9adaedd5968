// Azure Machine Learning: a command job, through `az ml`. One process per machine, which is the launcher.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"
#include "lockstep/jobs/yaml.h"

namespace lockstep::jobs {
namespace {

using json = nlohmann::ordered_json;
constexpr const char* kLabel = "Azure ML job";

std::vector<std::string> az(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), {"az", "ml", "job"});
  words.insert(words.end(), {"--resource-group", place.resource_group, "--workspace-name", place.workspace});
  words.insert(words.end(), place.options.begin(), place.options.end());
  return words;
}

void check_place(const Place& place) {
  require_settings(place, {"image", "workspace", "resource_group"});
  if (place.compute.empty() == place.machine.empty())
    throw base::ConfigError(
        722,
        "a target of kind azureml needs either compute, the name of a cluster, or machine, the "
        "size of serverless machines; example: machine = \"Standard_ND96asr_v4\"");
  if (place.spot && !place.compute.empty())
    throw base::ConfigError(
        722, "whether a compute cluster is low priority is its own setting; remove spot, or use machine");
  require_shared_secret(place, "Key Vault and add --secret LOCKSTEP_SECRET=azure:VAULT/NAME");
}

// Azure ML gives torchrun's variables to its one process; the ranks are the launcher's to number.
std::string command_of(const Job& job) {
  Job inside = job;
  inside.place.environment.clear();  // in the specification already
  if (inside.place.folder.empty()) inside.place.folder = "outputs";
  return "unset RANK LOCAL_RANK\n" +
         self_contained_script(
             inside, rendezvous_flags(inside, "\"$NODE_RANK\"", "\"$MASTER_ADDR\"", port_alone(job.place)));
}

json specification(const Job& job) {
  const Place& place = job.place;
  json resources{{"instance_count", place.nodes}};
  if (!place.machine.empty()) resources["instance_type"] = place.machine;
  json all{{"$schema", "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"},
           {"type", "command"},
           {"name", job.id},
           {"display_name", job.name},
           {"tags", {{"lockstep-job", job.id}}},
           {"command", command_of(job)},
           {"environment", {{"image", place.image}}},
           {"resources", resources}};
  if (!place.compute.empty()) all["compute"] = "azureml:" + place.compute;
  if (place.spot) all["queue_settings"] = {{"job_tier", "spot"}};
  json variables = json::object();
  for (const auto& [name, value] : variables_of(place)) variables[name] = value;
  if (!variables.empty()) all["environment_variables"] = variables;
  if (place.nodes > 1) all["distribution"] = {{"type", "pytorch"}, {"process_count_per_instance", 1}};
  if (place.time.count) all["limits"] = {{"timeout", place.time.count}};
  return all;
}

Plan plan(const Job& job) {
  check_place(job.place);
  Plan plan;
  plan.files = {{"job.yml", to_yaml(specification(job))}};
  // A job stays in the workspace for ever; one that has ended is not found, and costs nothing.
  const std::string show =
      shell_line(az(job.place, {"show", "--name", job.id, "--query", "status", "--output", "tsv"}));
  const std::string find = fmt::format(
      "said=$({} 2>&1) || case $said in *NotFound*|*'not found'*|*'could not be found'*) exit 0;; *) echo "
      "\"$said\" >&2; "
      "exit 1;; esac; case $said in Completed|Failed|Canceled) ;; *) echo {};; esac",
      show, job.id);
  plan.steps = {{.command = {.words = az(job.place, {"create", "--file", job.state_folder + "/job.yml",
                                                     "--query", "name", "--output", "tsv"}),
                             .patience_s = 600},
                 .makes = {{.job = job.id,
                            .label = kLabel,
                            .find = {"sh", "-c", find},
                            .remove = az(job.place, {"cancel", "--name", job.id}),
                            .id = job.id}}}};
  return plan;
}

Status status(const Submitted& job, Client& client) {
  const Command command{az(job.place, {"show", "--name", job.id, "--query", "status", "--output", "tsv"})};
  const Answer answer = client.run(command);
  if (!answer.ok()) return {State::unknown, "", answer.complaint(command)};
  const std::string state(base::trimmed(answer.output));
  if (state == "Completed") return {State::done, job.place.workspace, ""};
  if (state == "Canceled") return {State::stopped, "", ""};
  if (state == "CancelRequested" || state == "Finalizing") return {State::ending, "", state};
  if (state == "Failed" || state == "NotResponding") return {State::failed, "", state};
  if (state == "Running") return {State::running, job.place.workspace, ""};
  return {State::queued, "", state};
}

Logs logs(const Submitted& job, const LogsOptions&) {
  return {.command = {az(job.place, {"stream", "--name", job.id})}};
}

std::vector<std::string> why(const Submitted& job, const Status& status, Client& client) {
  static const std::vector<Reason> reasons = {
      {"Queued", "its machines are not free; lower nodes, or raise the cluster's largest size"},
      {"Preparing", "its image is being pulled"},
      {"Provisioning", "its machines are being provisioned"},
      {"uota", "the subscription's quota does not suffice; ask for more at Usage + quotas"},
      {"ImageBuild",
       "the image cannot be pulled; check its name, and whether the workspace may read that registry"},
  };
  std::string said = status.reason;
  if (status.state == State::failed) {
    const Answer answer = client.run(
        {az(job.place, {"show", "--name", job.id, "--query", "error.message", "--output", "tsv"})});
    if (answer.ok() && !base::trimmed(answer.output).empty()) said = base::trimmed(answer.output);
  }
  if (said.empty()) return {};
  const std::string meaning = meaning_of(reasons, said);
  return {base::quoted(said, 600) + (meaning.empty() ? "" : ": " + meaning)};
}

Command shell(const Submitted& job, int64_t node) {
  return {az(job.place, {"connect-ssh", "--name", job.id, "--node-index", std::to_string(node)})};
}

std::vector<Check> checks(const Place& place) {
  require_settings(place, {"workspace", "resource_group"});
  const auto any = [](const Place&, const Answer&) { return std::string(); };
  return {{"login", {{"az", "account", "show", "--query", "name", "--output", "tsv"}}},
          {"the extension ml",
           {{"az", "extension", "show", "--name", "ml", "--query", "version", "--output", "tsv"}}},
          {"permissions", {az(place, {"list", "--max-results", "1"})}, any}};
}

}  // namespace

Target azureml_target() {
  return {.kind = "azureml",
          .summary = "command jobs of Azure Machine Learning",
          .client = "az",
          .example =
              "lockstep submit first.toml --to azureml --image IMAGE --gpus 8 --set compute=gpu-cluster "
              "--set workspace=ml "
              "--set resource_group=research",
          .shares_files = false,
          .time_limit = TimeLimit::ends_the_job,
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
