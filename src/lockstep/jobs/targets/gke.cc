#include "lockstep/jobs/targets/gke.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/jobs/targets/google.h"

namespace lockstep::jobs {
namespace {

using json = nlohmann::ordered_json;
constexpr const char* kQueue = "queued-provisioning.gke.io";

std::vector<std::string> container(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), "container");
  return with_zone(place, std::move(words));
}

Step cluster_step(const Job& job) {
  const Place& place = job.place;
  // By its label, too: a cluster that was there before has the name, and is not ours to delete.
  const std::string ours = fmt::format("name={} AND resourceLabels.lockstep-job={}", place.cluster, job.id);
  return {
      .command = {.words =
                      container(place, {"clusters", "create", place.cluster, "--num-nodes=1",
                                        "--machine-type=n1-standard-4", "--labels=lockstep-job=" + job.id}),
                  .patience_s = 1800},
      .makes = {{.job = job.id,
                 .label = "GKE cluster",
                 .find = container(place, {"clusters", "list", "--filter=" + ours, "--format=value(name)"}),
                 .remove = container(place, {"clusters", "delete", place.cluster, "--quiet", "--async"}),
                 .id = place.cluster}}};
}

std::vector<std::string> pool_words(const Job& job) {
  const Place& place = job.place;
  const std::string strategy = strategy_of(place);
  std::vector<std::string> words = {"node-pools",
                                    "create",
                                    job.id,
                                    "--cluster=" + place.cluster,
                                    "--machine-type=" + place.machine,
                                    "--num-nodes=0",
                                    "--enable-autoscaling",
                                    "--min-nodes=0",
                                    fmt::format("--max-nodes={}", place.nodes),
                                    "--node-labels=lockstep-job=" + job.id};
  if (place.gpus)  // GKE installs the driver, so that no DaemonSet has to
    words.push_back(
        fmt::format("--accelerator=type={},count={},gpu-driver-version=default", place.gpu_type, place.gpus));
  if (place.disk_gib) words.push_back(fmt::format("--disk-size={}", place.disk_gib));
  if (place.local_ssd)
    words.push_back(fmt::format("--ephemeral-storage-local-ssd=count={}", place.local_ssd));
  if (place.placement == "compact") words.push_back("--placement-type=COMPACT");
  if (strategy == "SPOT") words.push_back("--spot");
  if (strategy == "FLEX_START")
    words.insert(words.end(),
                 {"--enable-queued-provisioning", "--reservation-affinity=none", "--no-enable-autorepair"});
  return words;
}

Step pool_step(const Job& job) {
  const Place& place = job.place;
  const std::string cluster = "--cluster=" + place.cluster;
  return {
      .command = {.words = container(place, pool_words(job)), .patience_s = 1800},
      .makes = {{.job = job.id,
                 .label = "node pool",
                 .find = container(place, {"node-pools", "list", cluster, "--filter=name=" + job.id,
                                           "--format=value(name)"}),
                 .remove = container(place, {"node-pools", "delete", job.id, cluster, "--quiet", "--async"}),
                 .id = job.id}}};
}

}  // namespace

bool is_gke(const Place& place) { return !place.cluster.empty(); }

Place gke_place(const Place& asked) {
  require_settings(asked, {"zone", "machine"});
  return with_machine_gpus(asked);
}

std::string kubeconfig_of(const Place& place) {
  return fmt::format("{}/gke-{}-{}-{}.kubeconfig", jobs_folder(), place.project, place.zone, place.cluster);
}

std::vector<Step> gke_steps(const Job& job) {
  std::vector<Step> steps;
  if (job.place.new_cluster) steps.push_back(cluster_step(job));
  steps.push_back(pool_step(job));
  std::vector<std::string> credentials =
      container(job.place, {"clusters", "get-credentials", job.place.cluster});
  credentials.insert(credentials.begin(), {"env", "KUBECONFIG=" + kubeconfig_of(job.place)});
  steps.push_back({.command = {.words = credentials, .patience_s = 120}});
  return steps;
}

std::vector<Check> gke_checks(const Place& asked) {
  const Place place = gke_place(asked);
  std::vector<Check> all = {google_login()};
  if (!place.new_cluster)
    all.push_back(
        {"cluster", {container(place, {"clusters", "describe", place.cluster, "--format=value(status)"})}});
  if (place.gpus) all.push_back(google_gpu_quota(place));
  return all;
}

bool waits_in_queue(const Place& place) {
  // Kueue, where there is a queue, asks for the nodes itself.
  return is_gke(place) && strategy_of(place) == "FLEX_START" && place.queue.empty();
}

json provisioning_manifest(const Job& job, const json& pod) {
  const json labels{{"lockstep-job", job.id}};
  const json metadata{{"name", job.id}, {"labels", labels}};
  json parameters = json::object();
  if (job.place.time.count) parameters["maxRunDurationSeconds"] = std::to_string(job.place.time.count);
  json request{
      {"provisioningClassName", kQueue},
      {"podSets", json::array({{{"count", job.place.nodes}, {"podTemplateRef", {{"name", job.id}}}}})}};
  if (!parameters.empty()) request["parameters"] = parameters;
  return {{"apiVersion", "v1"},
          {"kind", "List"},
          {"items", json::array({{{"apiVersion", "v1"},
                                  {"kind", "PodTemplate"},
                                  {"metadata", metadata},
                                  {"template", {{"metadata", {{"labels", labels}}}, {"spec", pod}}}},
                                 {{"apiVersion", "autoscaling.x-k8s.io/v1"},
                                  {"kind", "ProvisioningRequest"},
                                  {"metadata", metadata},
                                  {"spec", request}}})}};
}

json provisioning_annotations(const Job& job) {
  return {{"autoscaling.x-k8s.io/consume-provisioning-request", job.id},
          {"autoscaling.x-k8s.io/provisioning-class-name", kQueue}};
}

}  // namespace lockstep::jobs
