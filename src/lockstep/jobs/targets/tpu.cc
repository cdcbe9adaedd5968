// TPU VMs, as queued resources, through gcloud. Every worker runs the startup script; Lockstep starts and
// watches the user's JAX or PyTorch/XLA program there (--launch). Its own trainer has no kernels for TPUs.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/targets/google.h"

namespace lockstep::jobs {
namespace {

constexpr const char* kLabel = "TPU queued resource";
constexpr int kPause = 60;  // seconds: longer than the notice of a spot machine

// A TPU VM knows its number and its neighbours from the metadata server; the launcher reads TPU_WORKER_*.
constexpr const char* kWorkers = R"sh(#!/bin/bash
# Runs on every worker, at every boot.
mkdir -p /var/lib/lockstep
[ -e /var/lib/lockstep/ended ] && exit 0
export HOME=/root
metadata() {
  curl --silent --fail --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}
TPU_WORKER_ID=$(metadata agent-worker-number)
# KEY:PORT:ADDRESS,... in the order of the workers
TPU_WORKER_HOSTNAMES=$(metadata worker-network-endpoints | tr ',' '\n' | awk -F : '{ print $NF }' | paste -s -d ,)
export TPU_WORKER_ID TPU_WORKER_HOSTNAMES
)sh";

std::string startup_script(const Job& job) {
  Job inside = job;
  if (inside.place.folder.empty()) inside.place.folder = "/lockstep";
  return kWorkers + here_document("/var/lib/lockstep/run.sh", returning_script(inside, "", kPause)) +
         R"sh(bash /var/lib/lockstep/run.sh >>/var/lib/lockstep/log 2>&1
code=$?
echo "$code" >/var/lib/lockstep/code
[ "$code" = 75 ] || touch /var/lib/lockstep/ended
)sh";
}

void check_job(const Job& job) {
  const Place& place = job.place;
  require_settings(place, {"zone", "machine"});
  if (job.launch.empty())
    throw base::ConfigError(
        722,
        "Lockstep's own trainer has no kernels for TPUs; submit a JAX or PyTorch/XLA program: "
        "--launch \"train.py ...\"");
  // A TPU Node's version is TensorFlow's; a TPU VM's names its system or begins with v2-alpha.
  if (!place.runtime.empty() && std::isdigit(static_cast<unsigned char>(place.runtime[0])))
    throw base::ConfigError(
        722, fmt::format("runtime = {} is that of a TPU Node, which has no machine to run on beside the "
                         "chips and is no longer offered; use a TPU VM's, such as \"tpu-ubuntu2204-base\"",
                         base::quoted(place.runtime)));
  if (place.nodes > 1)
    throw base::ConfigError(
        722,
        "the accelerator type says how many workers a TPU has; leave nodes out, and choose for "
        "example machine = \"v5litepod-32\"");
}

std::vector<std::string> queued(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), {"compute", "tpus", "queued-resources"});
  return with_zone(place, std::move(words));
}

// One machine has up to eight chips or cores: v5litepod-16 and v4-32 have several.
bool has_several_workers(const std::string& type) {
  const std::optional<int64_t> size =
      base::parse_number<int64_t>(std::string_view(type).substr(type.rfind('-') + 1));
  return size && *size > 8;
}

Plan plan(const Job& job) {
  check_job(job);
  if (has_several_workers(job.place.machine)) {
    Place several = job.place;
    several.nodes = 2;
    require_shared_secret(several);
  }
  const Place& place = job.place;
  Plan plan;
  plan.files = {{"startup.sh", startup_script(job)}};
  std::vector<std::string> words = {
      "create",
      job.id,
      "--node-id=" + job.id,
      "--accelerator-type=" + place.machine,
      "--runtime-version=" + (place.runtime.empty() ? "tpu-ubuntu2204-base" : place.runtime),
      "--labels=lockstep-job=" + job.id,
      "--metadata-from-file=startup-script=" + job.state_folder + "/startup.sh"};
  if (place.spot) words.push_back("--spot");
  if (place.max_wait.count) words.push_back(fmt::format("--valid-until-duration={}s", place.max_wait.count));
  if (!place.network.empty()) words.push_back("--network=" + place.network);
  if (!place.service_account.empty()) words.push_back("--service-account=" + place.service_account);
  words.insert(words.end(), place.options.begin(), place.options.end());
  plan.steps = {{.command = {.words = queued(place, words), .patience_s = 600},
                 .makes = {{.job = job.id,
                            .label = kLabel,
                            .find = queued(place, {"list", fmt::format("--filter=name~/{}$", job.id),
                                                   "--format=value(name.basename())"}),
                            .remove = queued(place, {"delete", job.id, "--quiet", "--force", "--async"}),
                            .id = job.id}}}};
  plan.remarks = {
      "the workers keep running, and cost money, when the program has ended: `lockstep stop` deletes them"};
  return plan;
}

Command on_worker(const Submitted& job, const std::string& worker, const std::string& line) {
  std::vector<std::string> words = {"compute", "tpus", "tpu-vm", "ssh", job.id, "--worker=" + worker};
  if (!line.empty()) words.push_back("--command=" + line);
  return {with_zone(job.place, words)};
}

Status status(const Submitted& job, Client& client) {
  const Command command{queued(job.place, {"describe", job.id, "--format=value(state.state)"})};
  const Answer answer = client.run(command);
  if (!answer.ok()) return {State::unknown, "", answer.complaint(command)};
  const std::string state(base::trimmed(answer.output));
  if (state == "FAILED") return {State::failed, "", state};
  if (state == "SUSPENDED") return {State::saved, "", state};
  if (state == "DELETING" || state == "SUSPENDING") return {State::ending, "", state};
  if (state != "ACTIVE") return {State::queued, "", state};
  const Answer code =
      client.run(on_worker(job, "0", "cat /var/lib/lockstep/code 2>/dev/null || echo running"));
  const std::string ended(base::trimmed(code.ok() ? code.output : "running"));
  if (ended == "0") return {State::done, job.place.zone, ""};
  if (ended == "running" || ended == "75") return {State::running, job.place.zone, ""};
  return {State::failed, job.place.zone, "exit code " + ended};
}

Logs logs(const Submitted& job, const LogsOptions& options) {
  return {.command =
              on_worker(job, std::to_string(options.node),
                        fmt::format("sudo tail -n +1 {}/var/lib/lockstep/log", options.follow ? "-f " : ""))};
}

std::vector<std::string> why(const Submitted&, const Status& status, Client&) {
  if (status.reason.empty()) return {};
  return {explained(status.reason)};
}

Command shell(const Submitted& job, int64_t node) { return on_worker(job, std::to_string(node), ""); }

std::vector<Check> checks(const Place& place) {
  require_settings(place, {"zone", "machine"});
  return {google_login(),
          {"accelerator type",
           {with_zone(place, {"compute", "tpus", "accelerator-types", "list",
                              fmt::format("--filter=type={}", place.machine), "--format=value(type)"})}}};
}

}  // namespace

Target tpu_target() {
  return {.kind = "tpu",
          .summary = "TPU VMs of Google Cloud, for JAX and PyTorch/XLA programs",
          .client = "gcloud",
          .example =
              "lockstep submit --launch \"train.py\" --to tpu --set machine=v5litepod-8 --set "
              "zone=us-west4-a --set spot=true",
          .shares_files = false,
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
