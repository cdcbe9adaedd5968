// Kubernetes, through kubectl: a Secret for the rendezvous (its value on standard input), a headless Service
// where the form needs one, and the job itself.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"
#include "lockstep/jobs/targets/gke.h"
#include "lockstep/jobs/targets/kubernetes_manifest.h"
#include "lockstep/jobs/yaml.h"

namespace lockstep::jobs {
namespace {

using nlohmann::json;

const std::vector<Reason>& event_reasons() {
  static const std::vector<Reason> rows = {
      {"Insufficient nvidia.com/gpu",
       "no node has so many free GPUs; use fewer --gpus, or let the cluster grow"},
      {"Insufficient memory", "no node has so much free memory; lower memory_gib"},
      {"Insufficient cpu", "no node has so many free processors; lower cpus"},
      {"didn't match Pod's node affinity/selector",
       "no node has the labels; check node_labels and gpu_type against `kubectl get nodes --show-labels`"},
      {"untolerated taint", "nodes have taints that the pod does not tolerate; add them to tolerations"},
      {"ImagePullBackOff",
       "the image cannot be pulled; check its name, and whether the cluster may read that registry"},
      {"ErrImagePull",
       "the image cannot be pulled; check its name, and whether the cluster may read that registry"},
      {"InvalidImageName", "the image's name is not one; correct --image"},
      {"OOMKilled", "a container needed more memory than its limit; raise memory_gib"},
      {"exceeded quota", "the namespace's quota is used up; stop other jobs, or ask for more"},
      {"persistentvolumeclaim",
       "the volume claim does not exist or is not bound; `kubectl get pvc` shows it"},
      {"FailedMount", "a volume cannot be mounted; `kubectl get pvc` shows its state"},
      {"CreateContainerConfigError", "a Secret or ConfigMap that the pod names does not exist"},
      {"Evicted", "the node needed the pod's memory or disk; raise memory_gib or use larger nodes"},
      {"FailedScheduling", "no node fits; the event says why"},
      {"BackOff", "its container ends again and again; `lockstep logs` shows why"},
      {"violates PodSecurity",
       "the namespace refuses such pods by its pod security level; choose a namespace whose level is "
       "baseline"},
      {"error looking up service account",
       "the service account does not exist in this namespace; correct service_account"},
      {" usage per ", "the namespace's LimitRange allows less; lower memory_gib or cpus, or ask for more"},
      {"forbidden", "you or the service account may not do that; ask for the role"},
  };
  return rows;
}

std::vector<std::string> kubectl(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), "kubectl");
  if (is_gke(place)) words.push_back("--kubeconfig=" + kubeconfig_of(place));
  if (!place.context.empty()) words.push_back("--context=" + place.context);
  if (!place.space.empty()) words.push_back("--namespace=" + place.space);
  words.insert(words.end(), place.options.begin(), place.options.end());
  return words;
}

Resource resource_of(const Job& job, const std::string& what, bool costs) {
  const std::string object = what + "/" + job.id;
  return {.job = job.id,
          .label = what,
          .find = kubectl(job.place, {"get", object, "--ignore-not-found", "--output=name"}),
          .remove = kubectl(job.place, {"delete", object, "--ignore-not-found", "--wait=false"}),
          .costs = costs,
          .id = object};
}

// Who may not create may not ask or delete either: the server's word that it made nothing is all there is. A
// conflict is none, for what is in the way may be ours.
bool is_refusal(const Answer& answer) {
  return answer.error.find(" is forbidden: ") != std::string::npos ||
         answer.error.find(" is invalid: ") != std::string::npos;
}

Plan plan(const Job& asked) {
  Job job = asked;
  if (is_gke(asked.place)) job.place = gke_place(asked.place);
  const Place& place = job.place;
  if (place.image.empty())
    throw base::ConfigError(722,
                            "a target of kind kubernetes needs an image with lockstep in it: --image IMAGE");
  for (const char* name :
       {"machine", "zone", "local_ssd", "placement", "strategy", "disk_gib", "new_cluster"}) {
    static const Place defaults;
    if (!is_gke(place) && text_of(*find_setting(name), place) != text_of(*find_setting(name), defaults))
      throw base::ConfigError(
          722, fmt::format("{} is for the node pool that `cluster` makes; set cluster, too", name));
  }
  const Form& form = form_of(place);
  Plan plan;
  if (is_gke(place)) plan.steps = gke_steps(job);
  const auto create = [&](const std::string& file, const std::string& what, bool costs) {
    plan.steps.push_back(
        {.command = {kubectl(place, {"create", "--filename", job.state_folder + "/" + file})},
         .makes = {resource_of(job, what, costs)},
         .refused = is_refusal});
  };
  if (place.nodes > 1) {
    plan.steps.push_back({.command = {.words = kubectl(place, {"create", "secret", "generic", job.id,
                                                               "--from-file=secret=/dev/stdin"}),
                                      .input = fresh_secret()},
                          .makes = {resource_of(job, "secret", false)},
                          .refused = is_refusal});
  }
  if (place.nodes > 1 && std::string_view(form.name) == "job") {
    plan.files.push_back({"service.yaml", to_yaml(service_manifest(job))});
    create("service.yaml", "service", false);
  }
  if (waits_in_queue(place)) {
    plan.files.push_back({"provisioning.yaml", to_yaml(provisioning_of(job))});
    create("provisioning.yaml", "provisioningrequests.autoscaling.x-k8s.io", false);
    plan.steps.back().makes.push_back(resource_of(job, "podtemplate", false));
    plan.steps.back().refused = nullptr;  // two objects: one of them may have been made
  }
  plan.files.push_back({"job.yaml", to_yaml(form.manifest(job))});
  create("job.yaml", form.what, true);
  if (place.time.count && std::string_view(form.name) == "trainjob")
    plan.remarks.push_back("a TrainJob has no time limit: time has no effect");
  if (place.claim.empty() && std::string_view(form.name) != "trainjob")
    plan.remarks.push_back("no claim is set: the run folder goes with the pods; --set claim=NAME keeps it");
  return plan;
}

json ask(const std::vector<std::string>& words, Client& client, std::string& problem) {
  const Command command{words};
  const Answer answer = client.run(command);
  if (!answer.ok()) problem = answer.complaint(command);
  if (!answer.ok() || base::trimmed(answer.output).empty()) return {};
  json value = json::parse(answer.output, nullptr, false);
  if (value.is_discarded()) problem = "kubectl's answer is no JSON: " + base::quoted(answer.output);
  return value.is_object() ? value : json{};
}

json pods_of(const Submitted& job, Client& client, std::string& problem) {
  const json list =
      ask(kubectl(job.place, {"get", "pods", fmt::format("--selector={}={}", form_of(job.place).pods, job.id),
                              "--output=json"}),
          client, problem);
  return list.is_object() ? list.value("items", json::array()) : json::array();
}

std::string text_at(const json& value, const char* pointer) {
  const json::json_pointer place(pointer);
  return value.contains(place) && value[place].is_string() ? value[place].get<std::string>() : "";
}

// Why a container of the pod waits or has ended: "ImagePullBackOff: ...", "exit code 75".
std::string container_reason(const json& pod) {
  const json::json_pointer place("/status/containerStatuses");
  if (!pod.contains(place) || !pod[place].is_array()) return text_at(pod, "/status/reason");
  for (const json& one : pod[place]) {
    const std::string waiting = text_at(one, "/state/waiting/reason"),
                      ended = text_at(one, "/state/terminated/reason");
    if (!waiting.empty() && waiting != "ContainerCreating")
      return fmt::format("{}: {}", waiting, text_at(one, "/state/waiting/message"));
    if (ended == "OOMKilled") return ended;
    const json::json_pointer code("/state/terminated/exitCode");
    if (one.contains(code) && one[code] != 0) return fmt::format("exit code {}", one[code].dump());
  }
  return "";
}

// The object's own verdict, which outlives its pods.
Status condition_status(const json& object) {
  const json::json_pointer place("/status/conditions");
  if (!object.contains(place) || !object[place].is_array()) return {};
  Status status;
  for (const json& condition : object[place]) {
    const std::string type = text_at(condition, "/type");
    if (text_at(condition, "/status") != "True") continue;
    if (type == "Complete" || type == "Completed" || type == "Succeeded") return {State::done, "", ""};
    // A Job that will fail waits until the last of its pods is gone.
    if (type == "Failed" || type == "FailureTarget")
      status = {type == "Failed" ? State::failed : State::ending, "",
                fmt::format("{}: {}", text_at(condition, "/reason"), text_at(condition, "/message"))};
    if (type == "Failed") return status;
  }
  return status;
}

Status status(const Submitted& job, Client& client) {
  std::string problem;
  const json object = ask(kubectl(job.place, {"get", std::string(form_of(job.place).what) + "/" + job.id,
                                              "--ignore-not-found", "--output=json"}),
                          client, problem);
  if (!problem.empty()) return {State::unknown, "", problem};
  if (object.is_null()) return {State::unknown, "", "the cluster no longer has it"};
  Status status = condition_status(object);
  const json pods = pods_of(job, client, problem);
  size_t running = 0;
  std::string reason;
  for (const json& pod : pods) {
    const std::string phase = text_at(pod, "/status/phase"), why = container_reason(pod);
    running += phase == "Running";
    if (reason.empty() && phase == "Pending") reason = why;
    if (status.state == State::failed && why == "exit code 75")
      return {State::saved, "", "preempted and saved; submit it again to resume"};
  }
  if (has_ended(status.state) || status.state == State::ending) return status;
  if (running > 0) return {State::running, fmt::format("{} of {} pods", running, job.place.nodes), reason};
  return {State::queued, "",
          !reason.empty() ? reason
          : pods.empty()  ? "it has no pods yet"
                          : "its pods wait"};
}

Logs logs(const Submitted& job, const LogsOptions& options) {
  std::vector<std::string> words = {"logs", fmt::format("--selector={}={}", form_of(job.place).pods, job.id),
                                    "--tail=-1", "--ignore-errors"};
  if (std::string_view(form_of(job.place).name) == "job")
    words[1] += fmt::format(",batch.kubernetes.io/job-completion-index={}", options.node);
  if (options.follow) words.push_back("--follow");
  return {.command = {kubectl(job.place, words)}};
}

std::vector<std::string> why(const Submitted& job, const Status& status, Client& client) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& said) {
    const std::string meaning = meaning_of(event_reasons(), said);
    const std::string line = base::quoted(said, 400) + (meaning.empty() ? "" : ": " + meaning);
    if (lines.size() < 10 && std::find(lines.begin(), lines.end(), line) == lines.end())
      lines.push_back(line);
  };
  if (!status.reason.empty()) add(status.reason);
  std::string problem;
  std::set<std::string> placed;  // on nodes: that there was none before is over
  for (const json& pod : pods_of(job, client, problem)) {
    if (const std::string reason = container_reason(pod); !reason.empty()) add(reason);
    if (!text_at(pod, "/spec/nodeName").empty()) placed.insert(text_at(pod, "/metadata/name"));
  }
  const json events =
      ask(kubectl(job.place, {"get", "events", "--field-selector=type=Warning", "--output=json"}), client,
          problem);
  for (const json& event : events.is_object() ? events.value("items", json::array()) : json::array()) {
    const std::string name = text_at(event, "/involvedObject/name");
    const bool over = text_at(event, "/reason") == "FailedScheduling" && placed.contains(name);
    if (name.starts_with(job.id) && !over)
      add(fmt::format("{}: {}", text_at(event, "/reason"), text_at(event, "/message")));
  }
  if (!problem.empty()) lines.push_back(problem);
  return lines;
}

// kubectl takes no selector here: the pod's name is asked for first, by a shell.
Command shell(const Submitted& job, int64_t node) {
  const std::string pod = shell_line(
      kubectl(job.place, {"get", "pods", fmt::format("--selector={}={}", form_of(job.place).pods, job.id),
                          "--sort-by=.metadata.name", "--output=name"}));
  return {{"sh", "-c",
           fmt::format("exec {} \"$({} | sed -n {}p)\" -- sh",
                       shell_line(kubectl(job.place, {"exec", "--stdin", "--tty"})), pod, node + 1)}};
}

// GPUs that the namespace's quotas still allow; a namespace without quotas has no limit.
std::string quota_problem(const Place& place, const Answer& answer) {
  const json list = json::parse(answer.output, nullptr, false);
  const int64_t wanted = place.nodes * place.gpus;
  for (const json& one : list.is_object() ? list.value("items", json::array()) : json::array()) {
    const auto amount = [&](const char* which) {
      const json::json_pointer at(fmt::format("/status/{}/requests.nvidia.com~1gpu", which));
      return one.contains(at) && one[at].is_string() ? base::parse_number<int64_t>(one[at].get<std::string>())
                                                     : std::nullopt;
    };
    const std::optional<int64_t> most = amount("hard"), used = amount("used");
    if (most && *most - used.value_or(0) < wanted)
      return fmt::format(
          "{} GPUs are wanted and the quota {} has {} of {} left; stop other jobs, or ask for more", wanted,
          base::quoted(text_at(one, "/metadata/name")), *most - used.value_or(0), *most);
  }
  return "";
}

std::vector<Check> checks(const Place& place) {
  std::vector<Check> all;
  if (is_gke(place)) return gke_checks(place);  // the cluster's own answers come when it is there
  for (const std::string& what :
       {std::string(form_of(place).what), std::string("services"), std::string("secrets")})
    all.push_back({"permissions", {kubectl(place, {"auth", "can-i", "create", what})}});
  all.push_back({"permissions", {kubectl(place, {"auth", "can-i", "get", "pods", "--subresource=log"})}});
  if (place.gpus)
    all.push_back({"quota", {kubectl(place, {"get", "resourcequotas", "--output=json"})}, quota_problem});
  return all;
}

}  // namespace

Target kubernetes_target() {
  return {.kind = "kubernetes",
          .summary = "a Kubernetes cluster: an Indexed Job, a JobSet, a PyTorchJob or a TrainJob",
          .client = "kubectl",
          .example =
              "lockstep submit first.toml --to kubernetes --image IMAGE --nodes 2 --gpus 4 --set claim=runs",
          .shares_files = false,
          .disk_gib = 100,
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
