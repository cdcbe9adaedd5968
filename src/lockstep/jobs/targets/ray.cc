// A Ray cluster, through `ray job submit`. The driver (ray_driver.h) reserves one bundle per node and starts
// the launcher in an actor on each.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"
#include "lockstep/jobs/targets/ray_driver.h"

namespace lockstep::jobs {
namespace {

constexpr const char* kLabel = "Ray job";

std::vector<std::string> ray(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), {"ray", "job"});
  if (!place.address.empty()) words.insert(words.begin() + 3, {"--address", place.address});
  return words;
}

// What the driver is told; the script of a node is in it, secrets are not.
std::string settings_text(const Job& job) {
  const Place& place = job.place;
  Job inside = job;
  if (inside.place.folder.empty()) inside.place.folder = "/tmp/lockstep";
  const nlohmann::ordered_json settings{
      {"job", job.id},
      {"nodes", place.nodes},
      {"gpus", place.gpus},
      {"cpus", place.cpus ? place.cpus : ranks_of(place)},
      {"preemptions", place.preemptions},
      {"script",
       self_contained_script(inside, rendezvous_flags(inside, "\"$NODE\"", "\"$FIRST\"", place.port))}};
  return settings.dump(2) + "\n";
}

Plan plan(const Job& job) {
  const Place& place = job.place;
  Plan plan;
  // A folder of its own: all of it is uploaded to the cluster.
  plan.files = {{"ray/driver.py", kRayDriver}, {"ray/settings.json", settings_text(job)}};
  std::vector<std::string> submit = ray(
      place, {"submit", "--submission-id", job.id, "--no-wait", "--working-dir", job.state_folder + "/ray"});
  submit.insert(submit.end(), place.options.begin(), place.options.end());
  submit.insert(submit.end(), {"--", "python", "driver.py", "settings.json"});
  // `status` is the only question that answers for one job; it fails for a job that is not there.
  const std::string status = shell_line(ray(place, {"status", job.id}));
  plan.steps = {
      {.command = {.words = submit, .patience_s = 300},
       .makes = {
           {.job = job.id,
            .label = kLabel,
            .find = {"sh", "-c",
                     fmt::format("said=$({0} 2>&1); case $said in *\"Job '{1}' \"*|*'does not exist'*) ;; "
                                 "*\"Status for job '{1}'\"*) echo {1};; "
                                 "*) echo \"$said\" >&2; exit 1;; esac",
                                 status, job.id)},
            .remove = ray(place, {"stop", job.id}),
            .id = job.id}}}};
  return plan;
}

Status status(const Submitted& job, Client& client) {
  const Command command{ray(job.place, {"status", job.id})};
  const Answer answer = client.run(command);
  const std::string said = answer.output + answer.error;
  const auto says = [&](const char* word) { return said.find(word) != std::string::npos; };
  if (says("does not exist")) return {State::unknown, "", "the cluster no longer has it"};
  if (!answer.ok()) return {State::unknown, "", answer.complaint(command)};
  // The words of its command line: "Status for job 'ID': RUNNING", "Job 'ID' succeeded". The log of a failed
  // job follows them.
  const auto ended = [&](const char* how) {
    return said.find(fmt::format("Job '{}' {}", job.id, how)) != std::string::npos;
  };
  if (ended("succeeded")) return {State::done, "", ""};
  if (ended("was stopped")) return {State::stopped, "", ""};
  if (ended("failed") && says("failed with exit code 75"))
    return {State::saved, "", "preempted and saved; submit it again to resume"};
  if (ended("failed")) return {State::failed, "", "its driver ended with an error; `lockstep logs` shows it"};
  if (says(": PENDING")) return {State::queued, "", "Ray has not started it yet"};
  if (says(": RUNNING")) return {State::running, job.place.address, ""};
  return {State::unknown, "", base::quoted(said, 200)};
}

Logs logs(const Submitted& job, const LogsOptions& options) {
  std::vector<std::string> words = ray(job.place, {"logs", job.id});
  if (options.follow) words.push_back("--follow");
  return {.command = {words}};
}

std::vector<std::string> why(const Submitted& job, const Status& status, Client& client) {
  if (status.state != State::running && status.state != State::failed) return {};
  static const std::vector<Reason> reasons = {
      {"waits for",
       "the cluster has not so many free machines or GPUs; ask for less, or let it grow (`ray status`)"},
  };
  const Answer answer = client.run({ray(job.place, {"logs", job.id})});
  std::string last;
  for (const std::string& line : base::split_lines(answer.ok() ? answer.output : "")) {
    if (line.find("lockstep: ") != std::string::npos) last = line;
  }
  if (last.empty()) return {};
  const std::string meaning = meaning_of(reasons, last);
  return {base::quoted(last, 400) + (meaning.empty() ? "" : ": " + meaning)};
}

Command shell(const Submitted&, int64_t) { return {}; }

std::vector<Check> checks(const Place& place) {
  const auto any = [](const Place&, const Answer&) { return std::string(); };
  return {{"cluster", {ray(place, {"list"})}, any}};
}

}  // namespace

Target ray_target() {
  return {.kind = "ray",
          .summary = "a Ray cluster, through its job API; lockstep is installed on its nodes",
          .client = "ray",
          .example = "lockstep submit first.toml --to ray --nodes 2 --gpus 4 --set address=http://head:8265",
          .shares_files = false,
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
