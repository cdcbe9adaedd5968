// Compute Engine: one instance per node, all made by one call of gcloud, with a startup script that is safe
// to run at every boot. Instances switch themselves off when the run has ended; `stop` deletes them.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"

namespace lockstep::jobs {
namespace {

constexpr int kPort = 29400;

std::string instance(const std::string& job, int64_t node) { return fmt::format("{}-{}", job, node); }

std::vector<std::string> gcloud(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), {"gcloud", "compute", "instances"});
  words.push_back("--zone=" + place.zone);
  if (!place.project.empty()) words.push_back("--project=" + place.project);
  return words;
}

// The last part runs inside the container; the rest around it, as root.
std::string startup_script(const Job& job) {
  const Place& place = job.place;
  Job inside = job;
  inside.place.folder = place.folder.empty() ? "/lockstep" : place.folder;
  std::string run = self_contained_script(inside);
  if (place.nodes > 1)
    run.insert(
        run.size() - 1,
        fmt::format(" --nnodes {} --node-rank \"${{HOSTNAME##*-}}\" --rdzv-endpoint {}:{} --rdzv-id {}",
                    place.nodes, instance(job.id, 0), kPort, job.id));
  std::string start = "bash /var/lib/lockstep/run.sh\n";
  if (!place.image.empty())
    start = fmt::format(
        "docker run --rm --name lockstep {}--network host --ipc host --env HOSTNAME --volume {}:{} --volume "
        "/var/lib/lockstep:/var/lib/lockstep {} sh /var/lib/lockstep/run.sh\n",
        place.gpus ? "--gpus all " : "", inside.place.folder, inside.place.folder, shell_word(place.image));
  return fmt::format(R"sh(#!/bin/bash
# Runs at every boot. A machine that was taken away and comes back resumes its run; one that has ended does not.
mkdir -p /var/lib/lockstep
[ -e /var/lib/lockstep/ended ] && exit 0
export HOME=/root
HOSTNAME=$(hostname -s)
export HOSTNAME
{0}{1}code=$?
echo "lockstep: exit code $code"
curl --silent --request PUT --data "$code" --header 'Metadata-Flavor: Google' \
  http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/lockstep/code
[ "$code" = 75 ] && exit 75
touch /var/lib/lockstep/ended
shutdown -h now
)sh",
                     here_document("/var/lib/lockstep/run.sh", run), start);
}

void check_place(const Place& place) {
  for (const auto& [name, missing] :
       {std::pair{"zone", place.zone.empty()}, std::pair{"machine", place.machine.empty()}}) {
    if (missing)
      throw base::ConfigError(
          722, fmt::format("a target of kind gce needs {}; example: {}", name, find_setting(name)->example));
  }
  require_shared_secret(place);
}

std::vector<std::string> create_words(const Job& job) {
  const Place& place = job.place;
  std::vector<std::string> words = {"create"};
  for (int64_t node = 0; node < place.nodes; ++node) words.push_back(instance(job.id, node));
  words.insert(words.end(), {"--machine-type=" + place.machine, "--labels=lockstep-job=" + job.id,
                             "--metadata=enable-guest-attributes=TRUE",
                             "--metadata-from-file=startup-script=" + job.state_folder + "/startup.sh",
                             "--maintenance-policy=TERMINATE", "--scopes=cloud-platform"});
  // A2 and A3 machines bring their GPUs; others are given them.
  if (place.gpus && !place.gpu_type.empty())
    words.push_back(fmt::format("--accelerator=type={},count={}", place.gpu_type, place.gpus));
  if (place.disk_gib) words.push_back(fmt::format("--boot-disk-size={}GB", place.disk_gib));
  if (place.spot)
    words.insert(words.end(), {"--provisioning-model=SPOT", "--instance-termination-action=STOP"});
  if (place.time.count) words.push_back(fmt::format("--max-run-duration={}s", place.time.count));
  if (place.time.count && !place.spot) words.push_back("--instance-termination-action=STOP");
  if (!place.network.empty()) words.push_back("--network=" + place.network);
  if (!place.service_account.empty()) words.push_back("--service-account=" + place.service_account);
  words.insert(words.end(), place.options.begin(), place.options.end());
  return gcloud(place, words);
}

Plan plan(const Job& job) {
  check_place(job.place);
  Plan plan;
  plan.files = {{"startup.sh", startup_script(job)}};
  Step step{.command = {.words = create_words(job), .patience_s = 600}};
  for (int64_t node = 0; node < job.place.nodes; ++node) {
    const std::string name = instance(job.id, node);
    std::vector<std::string> find = {"gcloud",
                                     "compute",
                                     "instances",
                                     "list",
                                     "--filter=name=" + name,
                                     "--zones=" + job.place.zone,
                                     "--format=value(name)"};
    if (!job.place.project.empty()) find.push_back("--project=" + job.place.project);
    step.makes.push_back({.job = job.id,
                          .label = "instance " + name,
                          .find = find,
                          .remove = gcloud(job.place, {"delete", name, "--quiet"}),
                          .id = name});
  }
  plan.steps = {step};
  plan.remarks = {
      "the instances need an NVIDIA driver and, with an image, Docker: add --set "
      "options=--image-family=...,--image-project=..."};
  return plan;
}

Status status(const Submitted& job, Client& client) {
  std::vector<std::string> words = {"gcloud",
                                    "compute",
                                    "instances",
                                    "list",
                                    "--filter=labels.lockstep-job=" + job.id,
                                    "--format=value(status)"};
  if (!job.place.project.empty()) words.push_back("--project=" + job.place.project);
  const Command command{words};
  const Answer answer = client.run(command);
  if (!answer.ok()) return {State::unknown, "", answer.complaint(command)};
  size_t running = 0, all = 0, starting = 0;
  for (const std::string& line : base::split_lines(answer.output)) {
    const std::string_view state = base::trimmed(line);
    all += !state.empty(), running += state == "RUNNING",
        starting += state == "PROVISIONING" || state == "STAGING";
  }
  if (all == 0) return {State::unknown, "", "it has no instances any more"};
  const Answer code =
      client.run({gcloud(job.place, {"get-guest-attributes", instance(job.id, 0),
                                     "--query-path=lockstep/code", "--format=value(value)"})});
  const std::string ended(base::trimmed(code.ok() ? code.output : ""));
  if (starting) return {State::queued, "", "instances are being made"};
  if (ended == "0") return {State::done, job.place.zone, ""};
  if (running)
    return {State::running, fmt::format("{} of {} instances in {}", running, job.place.nodes, job.place.zone),
            ""};
  if (ended == "75" || ended.empty())
    return {State::saved, "",
            "its instances were switched off; `gcloud compute instances start` resumes the run"};
  return {State::failed, "", "exit code " + ended};
}

Logs logs(const Submitted& job, const LogsWish& wish) {
  return {.command = {gcloud(job.place, {wish.follow ? "tail-serial-port-output" : "get-serial-port-output",
                                         instance(job.id, wish.node)})}};
}

std::vector<std::string> why(const Submitted&, const Status&, Client&) { return {}; }

Command shell(const Submitted& job, int64_t node) {
  std::vector<std::string> words = {"gcloud", "compute", "ssh", instance(job.id, node),
                                    "--zone=" + job.place.zone};
  if (!job.place.project.empty()) words.push_back("--project=" + job.place.project);
  return {words};
}

std::vector<Command> checks(const Place& place) {
  return {{{"gcloud", "auth", "list", "--filter=status:ACTIVE", "--format=value(account)"}},
          {{"gcloud", "compute", "zones", "describe", place.zone, "--format=value(status)"}}};
}

}  // namespace

Target gce_target() {
  return {.kind = "gce",
          .summary = "Compute Engine instances of Google Cloud",
          .client = "gcloud",
          .example =
              "lockstep submit first.toml --to gce --image IMAGE --gpus 4 --set machine=a2-highgpu-4g --set "
              "zone=us-central1-a --set spot=true",
          .shares_files = false,
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
