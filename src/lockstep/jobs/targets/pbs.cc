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

// Old servers cut names to 15 letters: the random ones at the end must be among them, because the name is
// what finds the job, and another job of the same run is not to be deleted.
std::string short_name(const std::string& id) {
  constexpr size_t kMost = 15, kRandom = 7;  // with its -
  return id.size() <= kMost ? id : id.substr(0, kMost - kRandom) + id.substr(id.size() - kRandom);
}

std::string header(const Job& job) {
  const Place& place = job.place;
  std::string chunk = fmt::format("select={}", place.nodes);
  if (place.cpus) chunk += fmt::format(":ncpus={}", place.cpus);
  if (place.gpus) chunk += fmt::format(":ngpus={}", place.gpus);
  if (place.memory_gib) chunk += fmt::format(":mem={}gb", place.memory_gib);
  std::vector<std::string> rows = {"-N " + short_name(job.id),
                                   "-l " + chunk,
                                   "-l place=scatter",
                                   "-j oe",
                                   "-o " + shell_word(job.state_folder + "/pbs.log"),
                                   "-r y"};
  if (place.time.count) rows.push_back("-l walltime=" + walltime(place.time));
  if (!place.partition.empty()) rows.push_back("-q " + shell_word(place.partition));
  if (!place.account.empty()) rows.push_back("-A " + shell_word(place.account));
  rows.insert(rows.end(), place.options.begin(), place.options.end());
  std::string text;
  for (const std::string& row : rows) text += "#PBS " + row + "\n";
  return text;
}

// PBS brings output home when the job has ended: the script writes its log itself, so that it can be
// followed. Only operators may rerun a job (qrerun), anyone may submit it again.
constexpr const char* kRun = R"sh(
rm -f "$here/ended"
start &
run=$!
trap 'kill -TERM "$run"' TERM
while kill -0 "$run" 2>/dev/null; do wait "$run"; done
wait "$run"
code=$?
starts=$(($(cat "$here/starts" 2>/dev/null || echo 0) + 1))
echo "$starts" >"$here/starts"
if [ "$code" = 75 ] && [ "$starts" -le "$preemptions" ] && [ ! -e "$here/stop" ]; then
  echo "lockstep: preempted and saved; asking PBS to run the job again"
  qrerun "$PBS_JOBID" 2>/dev/null && exit 75
  qsub -W "depend=afterany:$PBS_JOBID" "$here/job.sh" >"$here/next.new" && mv "$here/next.new" "$here/next" && exit 75
fi
echo "$code" >"$here/ended"
exit "$code"
)sh";

std::string script(const Job& job) {
  const Place& place = job.place;
  const std::string here = shell_word(job.state_folder);
  std::string text = fmt::format("#!/bin/bash\n# lockstep submit: {}\n{}\n", job.id, header(job));
  text += fmt::format("here={}\npreemptions={}\nexec >>\"$here/log\" 2>&1\n", here, place.preemptions);
  if (place.nodes > 1)
    return text + "cp \"$PBS_NODEFILE\" \"$here/nodes\" || exit 2\n" +
           "start() { exec pbsdsh -- bash \"$here/node.sh\"; }\n" + kRun;
  text += fmt::format("cd {} || exit 2\n", shell_word(place.folder)) + environment_lines(job);
  return text + fmt::format("start() {{ exec {}; }}\n", train_line(job, here + "/recipe.toml")) + kRun;
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
  // After its first return it has another number, and for a moment two.
  const std::string find = fmt::format(
      "all=$(qstat -f) || exit 1; echo \"$all\" | awk -v name={} '/^Job Id:/ {{ id = $3 }} /Job_Name = / {{ "
      "if ($3 == name) print id }}'",
      shell_word(short_name(job.id)));
  const Resource resource{
      .job = job.id,
      .label = kLabel,
      .find = {"sh", "-c", find},
      .remove = {"sh", "-c",
                 fmt::format("touch {}/stop; jobs=$({}) || exit 1; [ -z \"$jobs\" ] || qdel $jobs",
                             shell_word(job.state_folder), find)}};
  plan.steps = {{.command = {{"qsub", job.state_folder + "/job.sh"}},
                 .makes = {resource},
                 .id_in = [](const std::string& output) { return std::string(base::trimmed(output)); }}};
  return plan;
}

Status status(const Submitted& job, Client& client) {
  const std::string next(base::trimmed(base::try_read_file(job.state_folder + "/next", 200).text));
  const Command command{{"qstat", "-f", next.empty() ? job.id_of(kLabel) : next}};
  const Answer answer = client.run(command);
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
  const bool answers = answer.ok() || answer.error.find("nknown Job") != std::string::npos ||
                       answer.error.find("has finished") != std::string::npos;
  return {State::unknown, "",
          answers ? "PBS no longer knows it; its log may say more" : answer.complaint(command)};
}

Logs logs(const Submitted& job, const LogsOptions& options) {
  return {.command = {{"tail", "-c", fmt::format("+{}", options.from + 1), job.state_folder + "/log"}},
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
