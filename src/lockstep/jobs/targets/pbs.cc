// PBS (OpenPBS, PBS Professional): one qsub script; pbsdsh starts the launcher on every node, which reads the
// node file.
#include <fmt/format.h>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"

namespace lockstep::jobs {
namespace {

constexpr const char* kLabel = "PBS job";

std::string walltime(Seconds time) {
  return fmt::format("{}:{:02}:{:02}", time.count / 3600, time.count / 60 % 60, time.count % 60);
}

std::string script(const Job& job) {
  const Place& place = job.place;
  std::string chunk = fmt::format("select={}", place.nodes);
  if (place.cpus) chunk += fmt::format(":ncpus={}", place.cpus);
  if (place.gpus) chunk += fmt::format(":ngpus={}", place.gpus);
  if (place.memory_gib) chunk += fmt::format(":mem={}gb", place.memory_gib);
  const std::string end = shell_word(job.state_folder) + "/ended";
  std::string text = fmt::format(
      "#!/bin/bash\n#PBS -N {}\n#PBS -l {}\n#PBS -l place=scatter\n#PBS -j oe\n#PBS -o {}/log\n#PBS -r y\n",
      job.id.substr(0, 15), chunk, job.state_folder);
  if (place.time.count) text += "#PBS -l walltime=" + walltime(place.time) + "\n";
  if (!place.partition.empty()) text += "#PBS -q " + place.partition + "\n";
  if (!place.account.empty()) text += "#PBS -A " + place.account + "\n";
  for (const std::string& option : place.options) text += "#PBS " + option + "\n";
  const std::string here = shell_word(job.state_folder);
  std::string start = "pbsdsh -- bash " + here + "/node.sh";
  if (place.nodes == 1) {
    start = train_line(job, here + "/recipe.toml");
    text += fmt::format("\ncd {} || exit 2\n", shell_word(place.folder)) + environment_lines(job);
  } else {
    text += fmt::format("\ncp \"$PBS_NODEFILE\" {}/nodes || exit 2\n", here);
  }
  text += fmt::format(R"sh(rm -f {0}
{1} &
run=$!
trap 'kill -TERM "$run"' TERM
while kill -0 "$run" 2>/dev/null; do wait "$run"; done
wait "$run"
code=$?
runs=$(qstat -f "$PBS_JOBID" 2>/dev/null | sed -n 's/ *run_count = //p')
if [ "$code" = 75 ] && [ "${{runs:-1}}" -le {2} ] && [ ! -e {3}/stop ]; then
  qrerun "$PBS_JOBID" && exit 75
fi
echo "$code" >{0}
exit "$code"
)sh",
                      end, start, place.preemptions, shell_word(job.state_folder));
  return text;
}

// On each node. What pbsdsh starts has neither the script's folder nor its variables, and the list of nodes
// is only on the first of them.
std::string node_script(const Job& job) {
  const std::string here = shell_word(job.state_folder);
  return fmt::format("export PBS_NODEFILE={}/nodes\ncd {} || exit 2\n", here, shell_word(job.place.folder)) +
         environment_lines(job) +
         fmt::format("exec {}\n",
                     train_line(job, here + "/recipe.toml", "--rdzv-secret-file " + here + "/secret"));
}

Plan plan(const Job& job) {
  Plan plan;
  plan.files = {{"job.sh", script(job)}};
  if (job.place.nodes > 1) {
    plan.files.push_back({"node.sh", node_script(job)});
    plan.files.push_back({"secret", fresh_secret() + "\n", true});
  }
  if (!job.recipe.empty()) plan.files.push_back({"recipe.toml", job.recipe});
  // Names are cut to 15 letters by old servers: the script's folder finds the job.
  const Resource resource{
      .job = job.id,
      .label = kLabel,
      .find = {"sh", "-c",
               fmt::format("qstat -f 2>/dev/null | awk -v name={} '/^Job Id:/ {{ id = $3 }} /Job_Name = / {{ "
                           "if ($3 == name) print id }}'",
                           shell_word(job.id.substr(0, 15)))},
      .remove = {"sh", "-c", fmt::format("touch {}/stop; qdel \"$1\"", shell_word(job.state_folder)), "qdel",
                 "{id}"}};
  plan.steps = {{.command = {{"qsub", job.state_folder + "/job.sh"}},
                 .makes = {resource},
                 .id_in = [](const std::string& output) { return std::string(base::trimmed(output)); }}};
  return plan;
}

Status status(const Submitted& job, Client& client) {
  const Answer answer = client.run({{"qstat", "-f", job.id_of(kLabel)}});
  std::string state, comment;
  for (const std::string& line : base::split_lines(answer.ok() ? answer.output : "")) {
    const std::string_view text = base::trimmed(line);
    if (text.starts_with("job_state = ")) state = text.substr(12);
    if (text.starts_with("comment = ")) comment = text.substr(10);
  }
  if (state == "R" || state == "B") return {State::running, "", comment};
  if (state == "E") return {State::ending, "", comment};
  if (!state.empty() && state != "F" && state != "X" && state != "C")
    return {State::queued, "", comment.empty() ? "state " + state : comment};
  const std::string code(base::trimmed(base::try_read_file(job.state_folder + "/ended", 100).text));
  if (code == "0") return {State::done, "", ""};
  if (code == "75") return {State::saved, "", "preempted and saved; submit it again to resume"};
  if (!code.empty()) return {State::failed, "", "exit code " + code};
  return {State::unknown, "", "PBS no longer knows it; its log may say more"};
}

Logs logs(const Submitted& job, const LogsWish& wish) {
  return {.command = {{"tail", "-c", fmt::format("+{}", wish.from + 1), job.state_folder + "/log"}},
          .by_offset = true};
}

std::vector<std::string> why(const Submitted&, const Status& status, Client&) {
  static const std::vector<Reason> reasons = {
      {"Not Running: Insufficient amount of resource", "not enough of it is free now; ask for less, or wait"},
      {"Can Never Run",
       "no node has what it asks for; check nodes, gpus, cpus and memory_gib against `pbsnodes -a`"},
      {"Queue not started", "the queue does not start jobs now"},
      {"would exceed", "a limit of the queue or of your account is reached; wait for your other jobs"},
      {"Held", "it is held; `qrls JOB` lets it go"},
  };
  if (status.reason.empty()) return {};
  const std::string meaning = meaning_of(reasons, status.reason);
  return {"PBS says " + base::quoted(status.reason, 300) + (meaning.empty() ? "" : ": " + meaning)};
}

Command shell(const Submitted&, int64_t) { return {}; }
std::vector<Check> checks(const Place& place) {
  std::vector<Check> all = {{"server", {{"qstat", "-B"}}}};
  if (!place.partition.empty()) all.push_back({"queue", {{"qstat", "-Q", place.partition}}});
  return all;
}

}  // namespace

Target pbs_target() {
  return {.kind = "pbs",
          .summary = "a PBS cluster, through qsub; folders are shared with its nodes",
          .client = "qsub",
          .example = "lockstep submit first.toml --to pbs --nodes 2 --gpus 4 --time 24h",
          .shares_files = true,
          .time_limit = TimeLimit::saves_returns,
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs
