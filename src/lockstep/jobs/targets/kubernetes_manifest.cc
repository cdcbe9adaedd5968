#include "lockstep/jobs/targets/kubernetes_manifest.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/client.h"
#include "lockstep/jobs/targets/gke.h"

namespace lockstep::jobs {
namespace {

using json = nlohmann::ordered_json;
constexpr int kSaved = 75;

std::string folder_of(const Place& place) { return place.folder.empty() ? "/lockstep" : place.folder; }

// The kubelet replaces $(NAME), and $$ by $, in commands and in values of variables: what it would read is
// doubled, so that the container gets every $ that was meant.
std::string for_kubelet(const std::string& text) {
  std::string kept;
  for (size_t k = 0; k < text.size(); ++k) {
    const char next = k + 1 < text.size() ? text[k + 1] : '\0';
    kept += text[k] == '$' && (next == '$' || next == '(') ? std::string("$$") : std::string(1, text[k]);
  }
  return kept;
}

json labels(const Job& job) {
  json all{{"app.kubernetes.io/managed-by", "lockstep"}, {kJobLabel, job.id}};
  return all;
}

// Kueue reads its queue from the object that is submitted.
json metadata(const Job& job) {
  json all{{"name", job.id}, {"labels", labels(job)}};
  if (!job.place.queue.empty()) all["labels"]["kueue.x-k8s.io/queue-name"] = job.place.queue;
  return all;
}

json secret_variable(const std::string& variable, const std::string& secret, const std::string& key) {
  return {{"name", variable}, {"valueFrom", {{"secretKeyRef", {{"name", secret}, {"key", key}}}}}};
}

json variables(const Job& job) {
  json all = json::array();
  bool has_own = false;
  for (const auto& [name, value] : variables_of(job.place))
    all.push_back({{"name", name}, {"value", for_kubelet(value)}});
  for (const Secret& secret : secrets_of(job.place)) {
    has_own |= secret.variable == "LOCKSTEP_SECRET";
    if (secret.keeper != Secret::Keeper::kubernetes) continue;
    const size_t slash = secret.what.find('/');
    all.push_back(
        secret_variable(secret.variable, secret.what.substr(0, slash), secret.what.substr(slash + 1)));
  }
  if (job.place.nodes > 1 && !has_own) all.push_back(secret_variable("LOCKSTEP_SECRET", job.id, "secret"));
  return all;
}

json resources(const Place& place) {
  json limits = json::object();
  if (place.gpus) limits["nvidia.com/gpu"] = std::to_string(place.gpus);
  if (place.cpus) limits["cpu"] = std::to_string(place.cpus);
  if (place.memory_gib) limits["memory"] = fmt::format("{}Gi", place.memory_gib);
  return limits.empty() ? json::object() : json{{"limits", limits}, {"requests", limits}};
}

// `flags`: how the nodes find each other, where no operator tells them.
std::string script_of(const Job& job, const std::string& flags) {
  Job inside = job;
  inside.place.folder = folder_of(job.place);
  inside.place.environment.clear();  // in the manifest already
  return for_kubelet(self_contained_script(inside, flags));
}

json node_selector(const Job& job) {
  const Place& place = job.place;
  json all = json::object();
  for (const std::string& label : place.node_labels)
    all[label.substr(0, label.find('='))] =
        label.find('=') == std::string::npos ? "" : label.substr(label.find('=') + 1);
  if (!place.gpu_type.empty()) all["cloud.google.com/gke-accelerator"] = place.gpu_type;
  if (is_gke(place)) all["lockstep-job"] = job.id;  // its own node pool
  if (place.spot) all["cloud.google.com/gke-spot"] = "true";
  return all;
}

json tolerations(const Place& place) {
  json all = json::array();
  if (place.gpus)
    all.push_back({{"key", "nvidia.com/gpu"}, {"operator", "Exists"}, {"effect", "NoSchedule"}});
  if (place.spot)
    all.push_back({{"key", "cloud.google.com/gke-spot"},
                   {"operator", "Equal"},
                   {"value", "true"},
                   {"effect", "NoSchedule"}});
  for (const std::string& text : place.tolerations) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos)
      all.push_back({{"key", text}, {"operator", "Exists"}});
    else
      all.push_back(
          {{"key", text.substr(0, equals)}, {"operator", "Equal"}, {"value", text.substr(equals + 1)}});
  }
  return all;
}

// The container's name is the operator's where it looks for one.
json pod_spec(const Job& job, const char* container_name, const std::string& flags) {
  const Place& place = job.place;
  json container{
      {"name", container_name}, {"image", place.image}, {"command", {"sh", "-c", script_of(job, flags)}}};
  if (const json all = variables(job); !all.empty()) container["env"] = all;
  if (const json all = resources(place); !all.empty()) container["resources"] = all;
  container["securityContext"] = {{"allowPrivilegeEscalation", false}};
  container["volumeMounts"] = json::array({{{"name", "shm"}, {"mountPath", "/dev/shm"}}});
  json volumes = json::array({{{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}}}}});
  if (!place.claim.empty()) {
    container["volumeMounts"].push_back({{"name", "runs"}, {"mountPath", folder_of(place)}});
    volumes.push_back({{"name", "runs"}, {"persistentVolumeClaim", {{"claimName", place.claim}}}});
  }
  json spec{{"restartPolicy", "Never"},
            {"terminationGracePeriodSeconds", place.notice.count},
            {"automountServiceAccountToken", false}};
  if (!place.service_account.empty()) spec["serviceAccountName"] = place.service_account;
  if (const json all = node_selector(job); !all.empty()) spec["nodeSelector"] = all;
  if (const json all = tolerations(place); !all.empty()) spec["tolerations"] = all;
  spec["containers"] = json::array({container});
  spec["volumes"] = volumes;
  return spec;
}

std::string pod_flags(const Job& job, const std::string& first_pod) {
  return rendezvous_flags(job, "\"$JOB_COMPLETION_INDEX\"", first_pod, port_alone(job.place));
}

json on_exit(const char* action, std::vector<int> codes) {
  return {{"action", action}, {"onExitCodes", {{"operator", "In"}, {"values", codes}}}};
}
json on_disruption(const char* action) {
  return {{"action", action},
          {"onPodConditions", json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}};
}

json job_spec(const Job& job, const json& pod, const json& rules, int64_t backoff) {
  const Place& place = job.place;
  json spec{{"completionMode", "Indexed"},
            {"completions", place.nodes},
            {"parallelism", place.nodes},
            {"backoffLimit", backoff}};
  if (place.time.count) spec["activeDeadlineSeconds"] = place.time.count;
  spec["podFailurePolicy"] = {{"rules", rules}};
  json metadata{{"labels", labels(job)}};
  if (waits_in_queue(place)) metadata["annotations"] = provisioning_annotations(job);
  spec["template"] = {{"metadata", metadata}, {"spec", pod}};
  return spec;
}

// Codes 2 and 3 (rejected, unusable data) end the job; 75 and a lost node come back without being counted.
json indexed_job(const Job& job) {
  json pod = pod_spec(job, "trainer", pod_flags(job, fmt::format("{0}-0.{0}", job.id)));
  if (job.place.nodes > 1) pod["subdomain"] = job.id;
  const json rules =
      json::array({on_exit("FailJob", {2, 3}), on_disruption("Ignore"), on_exit("Ignore", {kSaved})});
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", metadata(job)},
          {"spec", job_spec(job, pod, rules, job.place.failures * job.place.nodes)}};
}

// All pods start again together. Failures count against maxRestarts; a job that fails by its pod failure
// policy, for 75 or a lost node, does not.
json jobset(const Job& job) {
  const json pod = pod_spec(job, "trainer", pod_flags(job, fmt::format("{0}-node-0-0.{0}", job.id)));
  const json rules = json::array({on_disruption("FailJob"), on_exit("FailJob", {kSaved})});
  const json restart = json::array({{{"name", "preempted"},
                                     {"action", "RestartJobSetAndIgnoreMaxRestarts"},
                                     {"onJobFailureReasons", {"PodFailurePolicy"}}}});
  const json node{{"name", "node"}, {"replicas", 1}, {"template", {{"spec", job_spec(job, pod, rules, 0)}}}};
  return {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
          {"kind", "JobSet"},
          {"metadata", metadata(job)},
          {"spec",
           {{"failurePolicy", {{"maxRestarts", job.place.failures}, {"rules", restart}}},
            {"network", {{"enableDNSHostnames", true}}},
            {"replicatedJobs", json::array({node})}}}};
}

// The operator writes PET_* and MASTER_ADDR, which the launcher reads.
json pytorchjob(const Job& job) {
  json pod = pod_spec(job, "pytorch", "");
  pod.erase("restartPolicy");
  const json replica{{"replicas", 1},
                     {"restartPolicy", "OnFailure"},
                     {"template", {{"metadata", {{"labels", labels(job)}}}, {"spec", pod}}}};
  json replicas{{"Master", replica}};
  if (job.place.nodes > 1) {
    replicas["Worker"] = replica;
    replicas["Worker"]["replicas"] = job.place.nodes - 1;
  }
  json policy{{"backoffLimit", job.place.failures + job.place.preemptions}, {"cleanPodPolicy", "None"}};
  if (job.place.time.count) policy["activeDeadlineSeconds"] = job.place.time.count;
  return {{"apiVersion", "kubeflow.org/v1"},
          {"kind", "PyTorchJob"},
          {"metadata", metadata(job)},
          {"spec",
           {{"nprocPerNode", std::to_string(ranks_of(job.place))},
            {"runPolicy", policy},
            {"pytorchReplicaSpecs", replicas}}}};
}

// Volumes, node selectors and tolerations of a TrainJob belong to its runtime.
json trainjob(const Job& job) {
  const Place& place = job.place;
  if (!place.claim.empty() || !place.node_labels.empty() || !place.tolerations.empty() ||
      !place.gpu_type.empty() || place.spot)
    throw base::ConfigError(722,
                            "with form = \"trainjob\" claim, node_labels, tolerations, gpu_type and spot "
                            "belong to the training runtime; set them there, or choose form = \"jobset\"");
  json trainer{
      {"image", place.image}, {"command", {"sh", "-c", script_of(job, "")}}, {"numNodes", place.nodes}};
  if (const json all = variables(job); !all.empty()) trainer["env"] = all;
  if (const json all = resources(place); !all.empty()) trainer["resourcesPerNode"] = all;
  const json runtime{{"apiGroup", "trainer.kubeflow.org"},
                     {"kind", "ClusterTrainingRuntime"},
                     {"name", place.runtime.empty() ? "torch-distributed" : place.runtime}};
  return {{"apiVersion", "trainer.kubeflow.org/v1alpha1"},
          {"kind", "TrainJob"},
          {"metadata", metadata(job)},
          {"spec", {{"runtimeRef", runtime}, {"trainer", trainer}}}};
}

constexpr Form kForms[] = {
    {"job", "job", indexed_job, kJobLabel},
    {"jobset", "jobsets.jobset.x-k8s.io", jobset, kJobLabel},
    {"pytorchjob", "pytorchjobs.kubeflow.org", pytorchjob, kJobLabel},
    {"trainjob", "trainjobs.trainer.kubeflow.org", trainjob, "jobset.sigs.k8s.io/jobset-name"},
};

}  // namespace

const Form& form_of(const Place& place) {
  for (const Form& form : kForms) {
    if (place.form == form.name) return form;
  }
  return kForms[0];
}

json provisioning_of(const Job& job) { return provisioning_manifest(job, pod_spec(job, "trainer", "")); }

json service_manifest(const Job& job) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", {{"name", job.id}, {"labels", labels(job)}}},
          {"spec",
           {{"clusterIP", "None"}, {"publishNotReadyAddresses", true}, {"selector", {{kJobLabel, job.id}}}}}};
}

}  // namespace lockstep::jobs
