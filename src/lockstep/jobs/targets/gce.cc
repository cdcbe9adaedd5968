// Compute Engine: one instance per node, made by one call of gcloud, or a managed instance group that brings
// machines back. They switch themselves off when the run has ended; `stop` deletes them.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/targets/gce_machine.h"
#include "lockstep/jobs/targets/gce_watch.h"
#include "lockstep/jobs/targets/google.h"

namespace lockstep::jobs {
namespace {

bool is_grouped(const Place& place) { return place.managed || strategy_of(place) == "FLEX_START"; }

void add_networks(const Place& place, Words& words) {
  if (place.networks.empty()) {
    if (!place.network.empty()) words.push_back("--network=" + place.network);
    return;
  }
  Words all = {place.network.empty() ? "default" : place.network};
  all.insert(all.end(), place.networks.begin(), place.networks.end());
  for (const std::string& one : all) {
    const size_t slash = one.find('/');
    std::string text = "--network-interface=nic-type=GVNIC,network=" + one.substr(0, slash);
    if (slash != std::string::npos) text += ",subnet=" + one.substr(slash + 1);
    words.push_back(text);
  }
}

void add_provisioning(const Place& place, Words& words) {
  const std::string strategy = strategy_of(place);
  if (strategy == "SPOT") words.push_back("--provisioning-model=SPOT");
  // The resize request is what makes it a flex start; its template must leave these to it.
  if (strategy == "FLEX_START")
    words.insert(words.end(), {"--no-restart-on-failure", "--reservation-affinity=none"});
  if (place.time.count) words.push_back(fmt::format("--max-run-duration={}s", place.time.count));
  if (strategy == "FLEX_START")
    words.push_back("--instance-termination-action=DELETE");
  else if (strategy == "SPOT" || place.time.count)
    words.push_back("--instance-termination-action=STOP");
}

// Flags that `instances create` and `instance-templates create` share.
Words machine_flags(const Job& job) {
  const Place& place = job.place;
  const BootImage image = boot_image_of(place);
  Words words = {"--machine-type=" + place.machine,
                 "--image-family=" + image.family,
                 "--image-project=" + image.project,
                 "--labels=lockstep-job=" + job.id,
                 "--metadata=enable-guest-attributes=TRUE,install-nvidia-driver=True",
                 "--metadata-from-file=startup-script=" + job.state_folder + "/startup.sh",
                 "--maintenance-policy=TERMINATE",
                 "--scopes=cloud-platform"};
  // A2, A3 and G2 bring their GPUs: naming them again is allowed, and is what the documents show.
  if (place.gpus) words.push_back(fmt::format("--accelerator=type={},count={}", place.gpu_type, place.gpus));
  words.push_back(fmt::format("--boot-disk-size={}GB", place.disk_gib ? place.disk_gib : 200));
  for (int64_t k = 0; k < place.local_ssd; ++k) words.push_back("--local-ssd=interface=NVME");
  add_provisioning(place, words);
  add_networks(place, words);
  if (place.placement == "compact") words.push_back("--resource-policies=" + job.id);
  if (!place.service_account.empty()) words.push_back("--service-account=" + place.service_account);
  words.insert(words.end(), place.options.begin(), place.options.end());
  return words;
}

Words find_words(const Place& place, const Words& what, const std::string& name) {
  Words words = what;
  words.insert(words.end(), {"list", "--filter=name=" + name, "--format=value(name)"});
  return gcloud(place, words);
}

// `gcloud compute WHAT create NAME ...`, with what finds and removes it.
Step create_step(const Job& job, const std::string& label, const Words& what, Words create,
                 const std::string& scope, bool costs) {
  Words words = what, remove = what;
  words.insert(words.end(), create.begin(), create.end());
  if (!scope.empty()) words.push_back(scope);
  remove.insert(remove.end(), {"delete", job.id, "--quiet"});
  if (!scope.empty()) remove.push_back(scope);
  return {.command = {.words = gcloud(job.place, words), .patience_s = 600},
          .makes = {{.job = job.id,
                     .label = label,
                     .find = find_words(job.place, what, job.id),
                     .remove = gcloud(job.place, remove),
                     .costs = costs,
                     .id = job.id}}};
}

Step placement_step(const Job& job) {
  return create_step(job, "placement policy", {"compute", "resource-policies"},
                     {"create", "group-placement", job.id, fmt::format("--vm-count={}", job.place.nodes),
                      "--collocation=collocated"},
                     "--region=" + region_of(job.place.zone), false);
}

Step instances_step(const Job& job) {
  const Place& place = job.place;
  Words words = {"compute", "instances", "create"};
  for (int64_t node = 0; node < place.nodes; ++node) words.push_back(instance_name(job.id, node));
  const Words flags = machine_flags(job);
  words.insert(words.end(), flags.begin(), flags.end());
  Step step{.command = {.words = with_zone(place, words), .patience_s = 600}};
  for (int64_t node = 0; node < place.nodes; ++node) {
    const std::string name = instance_name(job.id, node);
    step.makes.push_back({.job = job.id,
                          .label = "instance " + name,
                          .find = gcloud(place, {"compute", "instances", "list", "--filter=name=" + name,
                                                 "--zones=" + place.zone, "--format=value(name)"}),
                          .remove = with_zone(place, {"compute", "instances", "delete", name, "--quiet"}),
                          .id = name});
  }
  return step;
}

// A template and a group of its instances. Flex-start asks for all of them by a resize request, which waits;
// otherwise they get the numbered names that the run uses.
void add_group(const Job& job, std::vector<Step>& steps) {
  const Place& place = job.place;
  const Words group = {"compute", "instance-groups", "managed"};
  Words create = {"create", job.id};
  const Words flags = machine_flags(job);
  create.insert(create.end(), flags.begin(), flags.end());
  steps.push_back(
      create_step(job, "instance template", {"compute", "instance-templates"}, create, "", false));
  steps.push_back(
      create_step(job, "instance group", group,
                  {"create", job.id, "--template=" + job.id, "--size=0", "--base-instance-name=" + job.id,
                   "--default-action-on-vm-failure=" +
                       std::string(strategy_of(place) == "FLEX_START" ? "do-nothing" : "repair")},
                  "--zone=" + place.zone, true));
  if (strategy_of(place) == "FLEX_START") {
    Words request = {"compute",
                     "instance-groups",
                     "managed",
                     "resize-requests",
                     "create",
                     job.id,
                     "--resize-request=" + job.id,
                     fmt::format("--resize-by={}", place.nodes)};
    if (place.time.count) request.push_back(fmt::format("--requested-run-duration={}s", place.time.count));
    steps.push_back({.command = {.words = with_zone(place, request), .patience_s = 600}});
    return;
  }
  for (int64_t node = 0; node < place.nodes; ++node)
    steps.push_back(
        {.command = {.words = with_zone(place, {"compute", "instance-groups", "managed", "create-instance",
                                                job.id, "--instance=" + instance_name(job.id, node)}),
                     .patience_s = 600}});
}

Plan plan(const Job& asked) {
  Job job = asked;
  job.place = gce_place(asked.place);
  const Place& place = job.place;
  const bool flex = strategy_of(place) == "FLEX_START";
  if (flex && place.time.count == 0)
    throw base::ConfigError(
        722, "strategy = \"FLEX_START\" needs a time: for how long the machines are wanted, at most 7d");
  Plan plan;
  plan.files = {{"startup.sh", startup_script(job, flex ? Names::listed : Names::numbered)}};
  if (place.placement == "compact") plan.steps.push_back(placement_step(job));
  if (is_grouped(place))
    add_group(job, plan.steps);
  else
    plan.steps.push_back(instances_step(job));
  if (strategy_of(place) == "SPOT" && !place.managed)
    plan.remarks.push_back(
        "instances that are taken away stay off, with their disks; `gcloud compute instances start` resumes "
        "the run, "
        "and --set managed=true has a group bring them back");
  if (is_grouped(place))
    plan.remarks.push_back(
        "a machine that comes back has an empty disk: checkpoint.to=gs://BUCKET/... keeps checkpoints in a "
        "bucket");
  return plan;
}

}  // namespace

Target gce_target() {
  return {.kind = "gce",
          .summary = "Compute Engine instances of Google Cloud, or a managed group of them",
          .client = "gcloud",
          .example =
              "lockstep submit first.toml --to gce --image IMAGE --set machine=a2-highgpu-4g --set "
              "zone=us-central1-a --set spot=true",
          .shares_files = false,
          .time_limit = TimeLimit::ends_the_job,
          .disk_gib = 200,
          .plan = plan,
          .status = gce_status,
          .logs = gce_logs,
          .why = gce_why,
          .shell = gce_shell,
          .checks = gce_checks};
}

}  // namespace lockstep::jobs
