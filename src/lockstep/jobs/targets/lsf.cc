// LSF: one bsub script. blaunch starts the launcher on every host; a run that was preempted and has saved
// (exit code 75) is put into the queue again by LSF itself (-Q 75).
#include <fmt/format.h>

#include <sstream>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"

namespace lockstep::jobs {
namespace {

constexpr const char* kLabel = "LSF job";

std::string header(const Job& job) {
  const Place& place = job.place;
  const std::string gpu_type = place.gpu_type.empty() ? "" : ":gmodel=" + place.gpu_type;
  const int64_t slots = std::max<int64_t>(place.cpus, 1);  // on each host
  const std::pair<const char*, std::string> rows[] = {
      {"-J", job.id},
      {"-cwd", place.folder},
      {"-o", job.state_folder + "/lsf.log"},
      {"-n", std::to_string(place.nodes * slots)},
      {"-R", fmt::format("span[ptile={}]", slots)},
      {"-gpu", place.gpus ? fmt::format("num={}/host{}", place.gpus, gpu_type) : ""},
      {"-M", place.memory_gib ? fmt::format("{}G", place.memory_gib) : ""},
      {"-W", place.time.count ? std::to_string((place.time.count + 59) / 60) : ""},
      {"-wa", place.time.count ? "TERM" : ""},
      {"-wt", place.time.count ? std::to_string((place.notice.count + 59) / 60) : ""},
      {"-q", place.partition},
      {"-P", place.account},
      {"-Q", "75"},
  };
  std::string text;
  for (const auto& [name, value] : rows) {
    if (!value.empty()) text += fmt::format("#BSUB {} \"{}\"\n", name, value);
  }
  text += "#BSUB -r\n";  // runs again if its host dies
  for (const std::string& option : place.options) text += "#BSUB " + option + "\n";
  return text;
}

// LSF counts no requeues: the script does, in its folder, and hides the code when the budget is used up. LSF
// brings output home when the job has ended: the script writes its log itself, so that it can be followed.
constexpr const char* kRun = R"sh(
rm -f "$here/ended"
trap 'kill -TERM "$run"' TERM
start &
run=$!
while kill -0 "$run" 2>/dev/null; do wait "$run"; done
wait "$run"
code=$?
starts=$(($(cat "$here/starts" 2>/dev/null || echo 0) + 1))
echo "$starts" >"$here/starts"
if [ "$code" = 75 ] && [ "$starts" -le "$preemptions" ] && [ ! -e "$here/stop" ]; then
  echo "lockstep: preempted and saved; LSF runs the job again"
  exit 75
fi
echo "$code" >"$here/ended"
[ "$code" = 75 ] && exit 1
exit "$code"
)sh";

// Hosts of the job, each once and in LSF's order: LSB_MCPU_HOSTS is "HOST SLOTS HOST SLOTS ...".
constexpr const char* kHosts = R"sh(
hosts=$(echo "$LSB_MCPU_HOSTS" | tr ' ' '\n' | awk 'NF && NR % 2 == 1')
first=$(echo "$hosts" | head -n 1)
)sh";

std::string script(const Job& job) {
  const Place& place = job.place;
  std::string text = fmt::format("#!/bin/bash\n# lockstep submit: {}\n{}\n", job.id, header(job));
  text += fmt::format("here={}\npreemptions={}\nexec >>\"$here/log\" 2>&1\n", shell_word(job.state_folder),
                      place.preemptions);
  const std::string recipe = shell_word(job.state_folder + "/recipe.toml");
  if (place.nodes == 1) {
    text += environment_lines(job) + fmt::format("start() {{ exec {}; }}\n", train_line(job, recipe));
    return text + kRun;
  }
  return text + kHosts +
         "start() { exec blaunch -z \"$(echo $hosts)\" bash \"$here/node.sh\" \"$first\" \"$hosts\"; }\n" +
         kRun;
}

// On each host: its number is its line in the list.
std::string node_script(const Job& job) {
  std::string text = fmt::format(R"sh(first=$1
node=$(($(echo "$2" | grep -nxF -e "$(hostname)" -e "$(hostname -s)" | head -n 1 | cut -d : -f 1) - 1))
[ "$node" -ge 0 ] || {{ echo "lockstep: this host, $(hostname), is not in the job's list" >&2; exit 2; }}
cd {} || exit 2
)sh",
                                 shell_word(job.place.folder));
  const std::string flags = rendezvous_flags(job, "\"$node\"", "\"$first\"", job.place.port) +
                            " --rdzv-secret-file " + shell_word(job.state_folder + "/secret");
  return text + environment_lines(job) +
         fmt::format("exec {}\n", train_line(job, shell_word(job.state_folder + "/recipe.toml"), flags));
}

// "Job <4711> is submitted to queue <normal>."
std::string job_number(const std::string& output) {
  const size_t begin = output.find("Job <"), end = output.find('>', begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  const std::string number = output.substr(begin + 5, end - begin - 5);
  return !number.empty() && number.find_first_not_of("0123456789") == std::string::npos ? number : "";
}

Plan plan(const Job& job) {
  Plan plan;
  const std::string text = script(job);
  plan.files = {{"job.sh", text}};
  if (!job.recipe.empty()) plan.files.push_back({"recipe.toml", job.recipe});
  if (job.place.nodes > 1) {
    plan.files.push_back({"node.sh", node_script(job)});
    plan.files.push_back({"secret", fresh_secret() + "\n", true});
  }
  const Resource resource{
      .job = job.id,
      .label = kLabel,
      .find = {"sh", "-c",
               fmt::format(
                   "said=$(bjobs -noheader -o jobid -J {} 2>&1) || case $said in *'not found'*|*'No '*) ;; "
                   "*) echo \"$said\" >&2; exit 1;; esac; echo \"$said\" | sed -n '/^[0-9][0-9]*$/p'",
                   shell_word(job.id))},
      .remove = {"sh", "-c", fmt::format("touch {}/stop; bkill \"$1\"", shell_word(job.state_folder)),
                 "bkill", "{id}"}};
  plan.steps = {{.command = {.words = {"bsub"}, .input = text}, .makes = {resource}, .id_in = job_number}};
  return plan;
}

Status status(const Submitted& job, Client& client) {
  const Command command{
      {"bjobs", "-noheader", "-o", "stat exec_host pend_reason delimiter='|'", job.id_of(kLabel)}};
  const Answer answer = client.run(command);
  if (answer.code == 127) return {State::unknown, "", answer.complaint(command)};
  std::vector<std::string> parts;
  std::istringstream fields(answer.ok() ? answer.output.substr(0, answer.output.find('\n')) : "");
  for (std::string part; std::getline(fields, part, '|');) parts.emplace_back(base::trimmed(part));
  parts.resize(3);
  const std::string& state = parts[0];
  if (state == "RUN") return {State::running, parts[1], ""};
  if (state == "PEND" || state == "PSUSP" || state == "USUSP" || state == "SSUSP" || state == "WAIT" ||
      state == "PROV")
    return {State::queued, "", parts[2].empty() || parts[2] == "-" ? state : parts[2]};
  const std::string code(base::trimmed(base::try_read_file(job.state_folder + "/ended", 100).text));
  if (code == "0" || (code.empty() && state == "DONE")) return {State::done, "", ""};
  if (code == "75") return {State::saved, "", "preempted and saved; submit it again to resume"};
  if (!code.empty()) return {State::failed, "", "exit code " + code};
  if (state == "EXIT") return {State::failed, "", "LSF ended it; its log says why"};
  return {State::unknown, "", "LSF no longer knows it; its log may say more"};
}

Logs logs(const Submitted& job, const LogsOptions& options) {
  return {.command = {{"tail", "-c", fmt::format("+{}", options.from + 1), job.state_folder + "/log"}},
          .by_offset = true};
}

std::vector<std::string> why(const Submitted&, const Status& status, Client&) {
  static const std::vector<Reason> reasons = {
      {"New job is waiting for scheduling", "LSF has not looked at it yet"},
      {"Not enough", "not enough of it is free now; ask for less, or wait"},
      {"Job's requirements for reserving resource", "not enough of it is free now; ask for less, or wait"},
      {"Job requirements for",
       "no host has what it asks for; check gpus, gpu_type, cpus and memory_gib against `bhosts -gpu`"},
      {"user has reached", "a limit of your account is reached; wait for your other jobs"},
      {"queue has reached", "the queue is full; wait, or choose another partition"},
      {"suspended", "it is suspended; `bresume JOB` lets it go"},
      {"PSUSP", "it is held; `bresume JOB` lets it go"},
      {"dependency", "it waits for another job to end"},
  };
  if (status.state != State::queued) return {};
  const std::string meaning = meaning_of(reasons, status.reason);
  return {"LSF says " + base::quoted(status.reason, 300) + (meaning.empty() ? "" : ": " + meaning)};
}

Command shell(const Submitted&, int64_t) { return {}; }

std::vector<Check> checks(const Place& place) {
  std::vector<Check> all = {{"client", {{"lsid"}}}};
  if (!place.partition.empty()) all.push_back({"queue", {{"bqueues", place.partition}}});
  return all;
}

}  // namespace

Target lsf_target() {
  return {.kind = "lsf",
          .summary = "an LSF cluster, through bsub; folders are shared with its hosts",
          .client = "bsub",
          .example = "lockstep submit first.toml --to lsf --nodes 2 --gpus 4 --time 24h",
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
