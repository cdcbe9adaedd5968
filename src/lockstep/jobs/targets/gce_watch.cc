#include "lockstep/jobs/targets/gce_watch.h"

#include <fmt/format.h>

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/targets/gce_machine.h"
#include "lockstep/jobs/targets/google.h"

namespace lockstep::jobs {
namespace {

struct Instance {
  std::string name, state;
};

std::vector<std::string> list_words(const Submitted& job) {
  return gcloud(job.place, {"compute", "instances", "list", "--filter=labels.lockstep-job=" + job.id,
                            "--sort-by=name", "--format=value(name,status)"});
}

std::vector<Instance> instances_in(const std::string& output) {
  std::vector<Instance> all;
  for (const std::string& line : base::split_lines(output)) {
    Instance one;
    std::istringstream parts(line);
    if (parts >> one.name >> one.state) all.push_back(one);
  }
  return all;
}

// The first machine says how the run ended; it is asked while it exists, switched off or not.
std::string exit_code(const Submitted& job, const std::string& instance, Client& client) {
  const Answer answer =
      client.run({with_zone(job.place, {"compute", "instances", "get-guest-attributes", instance,
                                        "--query-path=lockstep/code", "--format=value(value)"})});
  return std::string(base::trimmed(answer.ok() ? answer.output : ""));
}

}  // namespace

Status gce_status(const Submitted& job, Client& client) {
  const Command command{list_words(job)};
  const Answer answer = client.run(command);
  if (!answer.ok()) return {State::unknown, "", answer.complaint(command)};
  const std::vector<Instance> all = instances_in(answer.output);
  int64_t running = 0, starting = 0;
  for (const Instance& one : all) {
    running += one.state == "RUNNING";
    starting += one.state == "PROVISIONING" || one.state == "STAGING";
  }
  const bool grouped = !job.id_of("instance group").empty();
  if (all.empty())
    return grouped ? Status{State::queued, "", "its machines are not made yet"}
                   : Status{State::unknown, "", "it has no instances any more"};
  const std::string code = exit_code(job, all.front().name, client);
  const std::string where = fmt::format("{} of {} instances in {}", running, job.place.nodes, job.place.zone);
  if (code == "0") return {State::done, job.place.zone, ""};
  if (starting || (grouped && running < job.place.nodes && code != "1" && code != "2" && code != "3"))
    return {State::queued, running ? where : "", "instances are being made"};
  if (running) return {State::running, where, ""};
  if (code == "75" || code.empty())
    return {State::saved, "",
            "its instances were switched off; `gcloud compute instances start` resumes the run"};
  return {State::failed, "", "exit code " + code};
}

Logs gce_logs(const Submitted& job, const LogsOptions& options) {
  return {
      .command = {with_zone(job.place, {"compute", "instances",
                                        options.follow ? "tail-serial-port-output" : "get-serial-port-output",
                                        instance_name(job.id, options.node)})}};
}

std::vector<std::string> gce_why(const Submitted& job, const Status& status, Client& client) {
  std::vector<std::string> lines;
  if (!status.reason.empty()) lines.push_back(status.reason);
  const std::string format = "--format=value(error.errors[0].code,error.errors[0].message)";
  std::vector<std::vector<std::string>> questions = {
      gcloud(job.place, {"compute", "operations", "list",
                         fmt::format("--filter=targetLink~{} AND error:*", job.id), "--limit=5", format})};
  if (!job.id_of("instance group").empty())
    questions.push_back(with_zone(job.place, {"compute", "instance-groups", "managed", "list-errors", job.id,
                                              "--limit=5", "--format=value(error.code,error.message)"}));
  for (const std::vector<std::string>& words : questions) {
    const Command command{words};
    const Answer answer = client.run(command);
    if (!answer.ok()) lines.push_back(answer.complaint(command));
    for (const std::string& line : base::split_lines(answer.ok() ? answer.output : "")) {
      if (!base::trimmed(line).empty()) lines.push_back(explained(std::string(base::trimmed(line))));
    }
  }
  return lines;
}

Command gce_shell(const Submitted& job, int64_t node) {
  return {with_zone(job.place, {"compute", "ssh", instance_name(job.id, node)})};
}

std::vector<Check> gce_checks(const Place& asked) {
  const Place place = gce_place(asked);
  std::vector<Check> all = {
      google_login(),
      {"zone", {gcloud(place, {"compute", "zones", "describe", place.zone, "--format=value(status)"})}},
      {"machine type",
       {with_zone(place, {"compute", "machine-types", "describe", place.machine, "--format=value(name)"})}},
  };
  if (place.gpus) all.push_back(google_gpu_quota(place));
  return all;
}

}  // namespace lockstep::jobs
