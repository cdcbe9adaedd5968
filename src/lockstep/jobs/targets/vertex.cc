// Vertex AI custom jobs, through gcloud. Pool 0 has one replica, the others are pool 1, as the service wants
// it; --config, because gcloud's flags know neither time limit nor strategy.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"
#include "lockstep/jobs/yaml.h"

namespace lockstep::jobs {
namespace {

using json = nlohmann::ordered_json;
constexpr const char* kLabel = "Vertex AI job";

std::vector<std::string> gcloud(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), {"gcloud", "ai", "custom-jobs"});
  words.push_back("--region=" + place.region);
  if (!place.project.empty()) words.push_back("--project=" + place.project);
  return words;
}

// NVIDIA_TESLA_A100 from nvidia-tesla-a100, so that one word serves all of Google's places.
std::string accelerator(std::string type) {
  for (char& c : type) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return type;
}

json pool(const Job& job, int64_t replicas) {
  const Place& place = job.place;
  json machine{{"machineType", place.machine}};
  if (place.gpus)
    machine["acceleratorType"] = accelerator(place.gpu_type), machine["acceleratorCount"] = place.gpus;
  json one{{"machineSpec", machine}, {"replicaCount", replicas}};
  if (place.disk_gib) one["diskSpec"] = {{"bootDiskType", "pd-ssd"}, {"bootDiskSizeGb", place.disk_gib}};
  one["containerSpec"] = {{"imageUri", place.image},
                          {"command", {"sh", "-c"}},
                          {"args", json::array({self_contained_script(job)})}};
  return one;
}

json specification(const Job& job) {
  const Place& place = job.place;
  json spec{{"workerPoolSpecs", json::array({pool(job, 1)})}};
  if (place.nodes > 1) spec["workerPoolSpecs"].push_back(pool(job, place.nodes - 1));
  const std::string strategy = !place.strategy.empty() ? place.strategy : place.spot ? "SPOT" : "STANDARD";
  json scheduling{{"strategy", strategy}};
  if (place.time.count) scheduling["timeout"] = fmt::format("{}s", place.time.count);
  if (strategy == "FLEX_START") scheduling["maxWaitDuration"] = "86400s";
  // A machine that is taken away comes back with the whole job, which resumes. A run that ends by itself,
  // with 75 too, ends the job.
  if (strategy == "SPOT") scheduling["restartJobOnWorkerRestart"] = true;
  spec["scheduling"] = scheduling;
  if (!place.service_account.empty()) spec["serviceAccount"] = place.service_account;
  if (!place.network.empty()) spec["network"] = place.network;
  if (!place.bucket.empty()) spec["baseOutputDirectory"] = {{"outputUriPrefix", place.bucket}};
  return spec;
}

void check_place(const Place& place) {
  const std::pair<const char*, bool> needed[] = {{"region", place.region.empty()},
                                                 {"machine", place.machine.empty()},
                                                 {"image", place.image.empty()},
                                                 {"gpu_type", place.gpus > 0 && place.gpu_type.empty()}};
  for (const auto& [name, missing] : needed) {
    if (missing)
      throw base::ConfigError(722, fmt::format("a target of kind vertex needs {}; example: {}", name,
                                               find_setting(name)->example));
  }
  require_shared_secret(place);
}

Plan plan(const Job& job) {
  check_place(job.place);
  Plan plan;
  plan.files = {{"job.yaml", to_yaml(specification(job))}};
  std::vector<std::string> words =
      gcloud(job.place, {"create", "--display-name=" + job.id, "--labels=lockstep-job=" + job.id,
                         "--config=" + job.state_folder + "/job.yaml", "--format=value(name)"});
  words.insert(words.end(), job.place.options.begin(), job.place.options.end());
  const Resource resource{
      .job = job.id,
      .label = kLabel,
      .find = gcloud(job.place, {"list", fmt::format("--filter=displayName={} AND NOT endTime:*", job.id),
                                 "--format=value(name)"}),
      .remove = gcloud(job.place, {"cancel", "{id}"})};
  plan.steps = {{.command = {.words = words, .patience_s = 300},
                 .makes = {resource},
                 .id_in = [](const std::string& output) { return std::string(base::trimmed(output)); }}};
  return plan;
}

Status status(const Submitted& job, Client& client) {
  const Command command{gcloud(
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

Logs logs(const Submitted& job, const LogsWish&) {
  return {.command = {gcloud(job.place, {"stream-logs", job.id_of(kLabel)})}};
}

std::vector<std::string> why(const Submitted&, const Status& status, Client&) {
  static const std::vector<Reason> reasons = {
      {"quota",
       "the project's quota does not suffice; ask for more at IAM & Admin, Quotas, or use another region"},
      {"Insufficient",
       "the region has no such machines free; try another region, or strategy = \"FLEX_START\""},
      {"JOB_STATE_QUEUED", "it waits for its turn"},
      {"JOB_STATE_PENDING", "its machines are being provisioned"},
      {"permission", "the service account may not do that; give it the role that the message names"},
  };
  if (status.reason.empty()) return {};
  const std::string meaning = meaning_of(reasons, status.reason);
  return {base::quoted(status.reason, 600) + (meaning.empty() ? "" : ": " + meaning)};
}

Command shell(const Submitted&, int64_t) { return {}; }

std::vector<Command> checks(const Place& place) {
  return {
      {{"gcloud", "auth", "list", "--filter=status:ACTIVE", "--format=value(account)"}},
      {{"gcloud", "ai", "custom-jobs", "list", "--region=" + place.region, "--limit=1", "--format=json"}}};
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
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
