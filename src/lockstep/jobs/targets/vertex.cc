// Vertex AI custom jobs, through gcloud. Pool 0 has one replica, the others are pool 1, as the service wants
// it; --config, because gcloud's flags know neither time limit nor strategy.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/targets/google.h"
#include "lockstep/jobs/yaml.h"

namespace lockstep::jobs {
namespace {

using json = nlohmann::ordered_json;
constexpr const char* kLabel = "Vertex AI job";
constexpr const char* kEnded = "JOB_STATE_SUCCEEDED JOB_STATE_FAILED JOB_STATE_CANCELLED JOB_STATE_EXPIRED";
constexpr int64_t kDay = 86400;
constexpr int kPause = 60;  // seconds: longer than the notice of a spot machine

std::vector<std::string> custom_jobs(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), {"ai", "custom-jobs"});
  words.push_back("--region=" + place.region);
  return gcloud(place, std::move(words));
}

// NVIDIA_TESLA_A100 from nvidia-tesla-a100, so that one word serves all of Google's places.
std::string accelerator(std::string type) {
  for (char& c : type) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return type;
}

json pool(const Job& job, int64_t replicas) {
  const Place& place = job.place;
  // The service takes any exit code but 0 for the end of the job, also that of a machine which is being taken
  // away. So the container of a spot job waits after 75: the machine goes, and the service starts the job
  // again. If it stays, the run resumes in it, a minute later and not more often than `preemptions`.
  const std::string script =
      strategy_of(place) == "SPOT" ? returning_script(job, "", kPause) : self_contained_script(job);
  json machine{{"machineType", place.machine}};
  if (!place.topology.empty()) machine["tpuTopology"] = place.topology;
  if (place.gpus)
    machine["acceleratorType"] = accelerator(place.gpu_type), machine["acceleratorCount"] = place.gpus;
  json one{{"machineSpec", machine}, {"replicaCount", replicas}};
  if (place.disk_gib) one["diskSpec"] = {{"bootDiskType", "pd-ssd"}, {"bootDiskSizeGb", place.disk_gib}};
  one["containerSpec"] = {
      {"imageUri", place.image}, {"command", {"sh", "-c"}}, {"args", json::array({script})}};
  return one;
}

json specification(const Job& job) {
  const Place& place = job.place;
  json spec{{"workerPoolSpecs", json::array({pool(job, 1)})}};
  if (place.nodes > 1) spec["workerPoolSpecs"].push_back(pool(job, place.nodes - 1));
  const std::string strategy = strategy_of(place);
  json scheduling{{"strategy", strategy}};
  if (place.time.count) scheduling["timeout"] = fmt::format("{}s", place.time.count);
  if (strategy == "FLEX_START" || place.max_wait.count)
    scheduling["maxWaitDuration"] = fmt::format("{}s", place.max_wait.count ? place.max_wait.count : kDay);
  // A machine that is taken away comes back with the whole job, which resumes. A run that ends by itself,
  // with 75 too, ends the job.
  if (strategy == "SPOT") scheduling["restartJobOnWorkerRestart"] = true;
  spec["scheduling"] = scheduling;
  if (!place.service_account.empty()) spec["serviceAccount"] = place.service_account;
  if (!place.network.empty()) spec["network"] = place.network;
  if (!place.bucket.empty()) spec["baseOutputDirectory"] = {{"outputUriPrefix", place.bucket}};
  return spec;
}

// TPU machines (ct5lp-hightpu-4t and the like) bring their chips; what runs on them is the user's program.
bool is_tpu(const std::string& machine) { return machine.starts_with("ct") || machine == "cloud-tpu"; }

Place checked(const Place& asked, bool launches) {
  require_settings(asked, {"region", "machine", "image"});
  if (asked.machine == "cloud-tpu")
    throw base::ConfigError(
        722,
        "cloud-tpu is the machine type of TPU v2 and v3, which Vertex AI trains on no more; use machine = "
        "\"ct5lp-hightpu-4t\" with topology = \"2x2\"");
  if (is_tpu(asked.machine) && asked.topology.empty())
    throw base::ConfigError(722,
                            fmt::format("{} needs a topology; example: topology = \"2x2\"", asked.machine));
  if (is_tpu(asked.machine) && !launches)
    throw base::ConfigError(
        722,
        "Lockstep's own trainer has no kernels for TPUs; submit a JAX or PyTorch/XLA program: "
        "--launch \"train.py ...\"");
  require_shared_secret(asked);
  return is_tpu(asked.machine) ? asked : with_machine_gpus(asked);
}

Plan plan(const Job& asked) {
  Job job = asked;
  job.place = checked(asked.place, !asked.launch.empty());
  Plan plan;
  plan.files = {{"job.yaml", to_yaml(specification(job))}};
  std::vector<std::string> words =
      custom_jobs(job.place, {"create", "--display-name=" + job.id, "--labels=lockstep-job=" + job.id,
                              "--config=" + job.state_folder + "/job.yaml", "--format=value(name)"});
  words.insert(words.end(), job.place.options.begin(), job.place.options.end());
  const Resource resource{
      .job = job.id,
      .label = kLabel,
      .find = custom_jobs(job.place,
                          {"list", fmt::format("--filter=displayName={} AND NOT state:({})", job.id, kEnded),
                           "--format=value(name)"}),
      .remove = custom_jobs(job.place, {"cancel", "{id}"})};
  plan.steps = {{.command = {.words = words, .patience_s = 300},
                 .makes = {resource},
                 .id_in = [](const std::string& output) { return std::string(base::trimmed(output)); }}};
  return plan;
}

Status status(const Submitted& job, Client& client) {
  const Command command{custom_jobs(
      job.place, {"describe", job.id_of(kLabel), "--format=value[separator='|'](state,error.message)"})};
  const Answer answer = client.run(command);
  if (!answer.ok()) return {State::unknown, "", answer.complaint(command)};
  const std::string said(base::trimmed(answer.output)), state = said.substr(0, said.find('|'));
  const std::string error = said.find('|') == std::string::npos ? "" : said.substr(said.find('|') + 1);
  if (state == "JOB_STATE_SUCCEEDED") return {State::done, job.place.region, ""};
  if (state == "JOB_STATE_CANCELLED") return {State::stopped, "", ""};
  if (state == "JOB_STATE_FAILED" || state == "JOB_STATE_EXPIRED")
    return error.find("exit code 75") != std::string::npos || error.find("status of 75") != std::string::npos
               ? Status{State::saved, "", "preempted and saved; submit it again to resume"}
               : Status{State::failed, "", error};
  if (state == "JOB_STATE_CANCELLING") return {State::ending, "", ""};
  if (state == "JOB_STATE_RUNNING" || state == "JOB_STATE_UPDATING")
    return {State::running, job.place.region, ""};
  return {State::queued, "", state};
}

Logs logs(const Submitted& job, const LogsOptions&) {
  return {.command = {custom_jobs(job.place, {"stream-logs", job.id_of(kLabel)})}};
}

std::vector<std::string> why(const Submitted&, const Status& status, Client&) {
  if (status.reason.empty()) return {};
  return {explained(status.reason)};
}

Command shell(const Submitted&, int64_t) { return {}; }

std::vector<Check> checks(const Place& place) {
  require_settings(place, {"region"});
  const auto any = [](const Place&, const Answer&) { return std::string(); };
  std::vector<Check> all = {
      google_login(), {"permissions", {custom_jobs(place, {"list", "--limit=1", "--format=json"})}, any}};
  return all;
}

}  // namespace

Target vertex_target() {
  return {.kind = "vertex",
          .summary = "Vertex AI custom jobs of Google Cloud",
          .client = "gcloud",
          .example =
              "lockstep submit first.toml --to vertex --image IMAGE --nodes 4 --gpus 1 --set "
              "machine=n1-standard-4 --set gpu_type=nvidia-tesla-t4 --set region=us-central1",
          .shares_files = false,
          .time_limit = TimeLimit::ends_the_job,
          .disk_gib = 100,
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
