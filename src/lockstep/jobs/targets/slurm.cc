// Slurm: one sbatch script. One task per node, which is the launcher; a run that was preempted and has saved
// (exit code 75) puts itself into the queue again, a failure does not.
#include <fmt/format.h>

#include <filesystem>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"

namespace lockstep::jobs {
namespace {

constexpr const char* kLabel = "Slurm job";

const std::vector<Reason>& pending_reasons() {
  static const std::vector<Reason> rows = {
      {"Resources",
       "it is next, and waits until enough nodes are free; fewer nodes or a shorter time start sooner"},
      {"Priority",
       "other jobs are before it; `sprio -j JOB` shows why, and a shorter time may let it fit in between"},
      {"DependencyNeverSatisfied", "the job it waits for has failed; stop it and submit it again"},
      {"Dependency", "it waits for another job to end"},
      {"PartitionTimeLimit",
       "its time is longer than the partition allows; submit it with a smaller --time (`sinfo -o '%P %l'`)"},
      {"PartitionNodeLimit",
       "it wants more nodes than the partition has; submit it with fewer --nodes (`sinfo`)"},
      {"PartitionConfig",
       "it wants more than the partition allows; `scontrol show partition` shows what that is"},
      {"PartitionDown", "the partition does not start jobs now; `sinfo` shows others"},
      {"PartitionInactive", "the partition does not start jobs now; `sinfo` shows others"},
      {"ReqNodeNotAvail", "nodes that it needs are down, reserved or in maintenance; `sinfo -R` says why"},
      {"NodeDown", "a node that it needs is down; `sinfo -R` says why"},
      {"BadConstraints",
       "no node has what it asks for; check gpus, cpus, memory_gib and constraint against `sinfo -o '%N %G "
       "%c %m %f'`"},
      {"QOSMax",
       "a limit of its quality of service is reached; wait for your other jobs, or choose another qos"},
      {"QOSGrp",
       "a limit of its quality of service is reached by all its users together; wait, or choose another qos"},
      {"AssocMax", "a limit of your account is reached; wait for your other jobs, or ask for more"},
      {"AssocGrp", "a limit of your account is reached by all its users together; wait, or ask for more"},
      {"InvalidAccount",
       "the account is not valid here; set account to one of `sacctmgr show associations user=$USER`"},
      {"InvalidQOS", "the quality of service is not valid here; set qos to another"},
      {"JobHeldUser", "it is held by its user; `scontrol release JOB` lets it go"},
      {"JobHeldAdmin", "it is held by an administrator; ask them"},
      {"launch failed requeued held", "its last start failed on a node; `scontrol release JOB` tries again"},
      {"JobLaunchFailure", "its last start failed on a node; look at its log, then `scontrol release JOB`"},
      {"BeginTime", "it was put into the queue again and may start in a moment"},
      {"Reservation", "it waits for its reservation to begin"},
      {"Licenses", "it waits for a licence"},
      {"Cleaning", "it was put into the queue again, and its last start is being cleaned up"},
      {"None", "Slurm has not looked at it yet"},
  };
  return rows;
}

// Slurm expands %; a folder's own are doubled.
std::string log_file(const std::string& folder, bool array) {
  std::string file;
  for (const char c : folder) file += c == '%' ? std::string("%%") : std::string(1, c);
  return file + (array ? "/log-%a" : "/log");
}

std::string minutes(Seconds time) { return std::to_string((time.count + 59) / 60); }

std::string gpus_text(const Place& place) {
  return fmt::format("{}{}", place.gpu_type.empty() ? "" : place.gpu_type + ":", place.gpus);
}

using Rows = std::vector<std::pair<const char*, std::string>>;

std::string directives(const Rows& rows) {
  std::string text;
  for (const auto& [name, value] : rows) {
    if (!value.empty()) text += fmt::format("#SBATCH --{}={}\n", name, shell_word(value));
  }
  return text;
}

// What each component of a heterogeneous job asks for by itself.
std::string nodes_header(const Place& place) {
  return directives({
      {"nodes", place.fewest_nodes > 0 ? fmt::format("{}-{}", place.fewest_nodes, place.nodes)
                                       : std::to_string(place.nodes)},
      // With it, Slurm gives a job that may have fewer nodes no more than the fewest; srun says it anyway.
      {"ntasks-per-node", place.fewest_nodes > 0 ? "" : "1"},
      {"cpus-per-task", place.cpus ? std::to_string(place.cpus) : ""},
      {"gpus-per-node", place.gpus ? gpus_text(place) : ""},
      {"mem", place.memory_gib ? fmt::format("{}G", place.memory_gib) : ""},
      {"time", place.time.count ? minutes(place.time) : ""},
      {"partition", place.partition},
      {"account", place.account},
      {"qos", place.qos},
      {"constraint", place.constraint},
  });
}

// The lines that sbatch reads: option and value, empty ones left out.
std::string header(const Job& job) {
  const Place& place = job.place;
  const bool array = !job.sweep.key.empty();
  std::string text = directives({
      {"job-name", job.id},
      {"comment", "lockstep " + job.name},
      {"chdir", place.folder},
      {"signal", fmt::format("B:TERM@{}", place.notice.count)},
      {"dependency", job.after.empty() ? "" : "afterok:" + job.after},
      {"array", array ? fmt::format("0-{}", job.sweep.values.size() - 1) : ""},
      {"output", log_file(job.state_folder, array)},
      {"open-mode", "append"},
  });
  text += "#SBATCH --requeue\n";
  const std::vector<Place> components = components_of(place);
  for (size_t k = 0; k < components.size(); ++k) {
    if (k > 0) text += "#SBATCH hetjob\n";
    text += nodes_header(components[k]);
    for (const std::string& option : place.options) text += "#SBATCH " + option + "\n";
  }
  return text;
}

bool several_in_containers(const Place& place) {
  return !place.image.empty() && (place.nodes > 1 || !place.components.empty());
}

// In a container nobody can ask Slurm for the address of the job's first node, which is the one that this
// script runs on.
constexpr const char* kFirstNode =
    R"(first=$(scontrol --oneliner show node "$SLURMD_NODENAME" | grep -o ' NodeAddr=[^ ]*')
first=${first#*=}
[[ $first != *:* ]] || first="[$first]"
)";

// What srun starts on every node of a component; `group` is its number in a heterogeneous job, `flags` are
// the launcher's.
std::string component_line(const Job& job, int group, const std::string& flags) {
  const Place& place = job.place;
  std::vector<std::string> words = {"--ntasks-per-node=1", "--kill-on-bad-exit=0"};
  if (group >= 0) words.push_back(fmt::format("--het-group={}", group));
  const std::string binds =
      job.state_folder + ":" + job.state_folder + "," + place.folder + ":" + place.folder;
  if (place.container == "pyxis") {
    words.insert(words.end(), {"--container-image=" + place.image, "--container-mounts=" + binds,
                               "--container-workdir=" + place.folder});
  } else if (!place.image.empty()) {
    words.insert(words.end(),
                 {"apptainer", "exec", "--nv", "--bind", binds, "--pwd", place.folder, place.image});
  }
  std::string line =
      shell_line(words) + " " + train_line(job, shell_word(job.state_folder + "/recipe.toml"), flags);
  if (!job.sweep.key.empty())
    line += fmt::format(" \"{}=${{values[SLURM_ARRAY_TASK_ID]}}\" \"run.name={}-$SLURM_ARRAY_TASK_ID\"",
                        job.sweep.key, job.name);
  return line;
}

// One srun, so one step, whose tasks are numbered through all components.
std::string start_line(const Job& job) {
  const std::vector<Place> components = components_of(job.place);
  const std::string flags = several_in_containers(job.place)
                                ? R"(${first:+--rdzv-endpoint "$first:auto" --rdzv-id "$SLURM_JOB_ID"})"
                                : "";
  if (components.size() == 1) return "srun " + component_line(job, -1, flags);
  std::string line = "srun ";
  for (size_t k = 0; k < components.size(); ++k) {
    Job of_component = job;
    of_component.place = components[k];
    line += (k > 0 ? " : " : "") + component_line(of_component, static_cast<int>(k), flags);
  }
  return line;
}

std::string script(const Job& job) {
  std::string text =
      fmt::format("#!/bin/bash\n# lockstep submit: {}\n{}\n", job.id, header(job)) + environment_lines(job);
  if (!job.sweep.key.empty()) text += fmt::format("values=({})\n", shell_line(job.sweep.values));
  if (several_in_containers(job.place)) text += kFirstNode;
  const std::string task = job.sweep.key.empty() ? "" : "-$SLURM_ARRAY_TASK_ID";
  text += fmt::format(R"(
# Slurm's warning comes to this script alone: it tells the ranks, which save and end with 75.
trap 'scancel --signal=TERM "$SLURM_JOB_ID"' TERM
rm -f {0}
said=$(wc -c <{3} 2>/dev/null)
{1} &
srun=$!
while kill -0 "$srun" 2>/dev/null; do wait "$srun"; done
wait "$srun"
code=$?

# Saved: run again, unless somebody has cancelled the job. A failure stays one.
state=$(squeue --noheader --format=%T --jobs="$SLURM_JOB_ID" 2>/dev/null | head -n 1)
if [[ $code == 75 && $state == RUNNING && ${{SLURM_RESTART_COUNT:-0}} -lt {2} ]]; then
  echo "lockstep: preempted and saved; asking Slurm to run the job again"
  scontrol requeue "$SLURM_JOB_ID" && exit 75
fi
# Not started on some node (a daemon that was too busy, a credential that had expired by then): the place's failure.
if [[ $code != 0 && $state == RUNNING && ${{SLURM_RESTART_COUNT:-0}} -lt {4} ]] &&
  tail -c +$((${{said:-0}} + 1)) {3} | grep -q "^srun: error: Application launch failed"; then
  echo "lockstep: Slurm could not start it on every node; asking Slurm to run the job again"
  scontrol requeue "$SLURM_JOB_ID" && exit "$code"
fi
echo "$code" >{0}
exit "$code"
)",
                      shell_word(job.state_folder) + "/ended" + task, start_line(job), job.place.preemptions,
                      shell_word(job.state_folder) + "/log" + task, job.place.failures);
  return text;
}

std::string job_number(const std::string& output) {
  std::string number(base::trimmed(output));
  number.resize(std::min(number.find(';'), number.size()));  // --parsable: JOB;CLUSTER
  const bool good = !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  return good ? number : "";
}

Plan plan(const Job& job) {
  const Place& place = job.place;
  if (!place.container.empty() && place.image.empty())
    throw base::ConfigError(722, fmt::format("container = {} needs an image", base::quoted(place.container)));
  if (place.fewest_nodes > place.nodes)
    throw base::ConfigError(
        722, fmt::format("fewest_nodes = {} is more than nodes = {}", place.fewest_nodes, place.nodes));
  if (!place.components.empty() && !job.sweep.key.empty())
    throw base::ConfigError(722, "components: Slurm has no arrays of heterogeneous jobs; leave --sweep out");
  Plan plan;
  plan.files = {{"job.sh", script(job)}};
  if (!job.recipe.empty()) plan.files.push_back({"recipe.toml", job.recipe});
  Resource resource{.job = job.id,
                    .label = kLabel,
                    .find = {"squeue", "--noheader", "--me", "--format=%F", "--name=" + job.id},
                    .remove = {"scancel", "{id}"}};
  plan.steps = {{.command = {{"sbatch", "--parsable", job.state_folder + "/job.sh"}},
                 .makes = {resource},
                 .id_in = job_number}};
  return plan;
}

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> all;
  std::istringstream parts(line);
  for (std::string part; std::getline(parts, part, '|');) all.emplace_back(base::trimmed(part));
  all.resize(8);
  return all;
}

Status status_of_code(const std::string& code) {
  if (code == "0") return {State::done, "", ""};
  if (code == "75") return {State::saved, "", "preempted and saved; submit it again to resume"};
  if (!code.empty()) return {State::failed, "", "exit code " + code};
  return {State::unknown, "", "Slurm no longer knows it; its log may say more"};
}

// Of the tasks of an array (and of the components of a heterogeneous job), the one to look at first.
Status worst_of(const std::vector<std::pair<std::string, Status>>& tasks) {
  for (const State state : {State::failed, State::unknown, State::saved, State::stopped, State::done}) {
    for (const auto& [task, status] : tasks) {
      if (status.state != state) continue;
      Status worst = status;
      if (tasks.size() > 1 && !worst.reason.empty()) worst.reason = fmt::format("{}: {}", task, worst.reason);
      return worst;
    }
  }
  return status_of_code("");
}

// Of an array, as its script asks for; 0: it is none.
int64_t tasks_of(const Submitted& job) {
  constexpr std::string_view kArray = "\n#SBATCH --array=0-";
  const std::string text = base::try_read_file(job.state_folder + "/job.sh").text;
  const size_t at = text.find(kArray);
  if (at == std::string::npos) return 0;
  const auto last = base::leading_number<int64_t>(std::string_view(text).substr(at + kArray.size()));
  return last ? *last + 1 : 0;
}

// What the script wrote at its end; where Slurm keeps no accounts, nothing else remembers.
Status ended_status(const Submitted& job) {
  const auto code = [&](const std::string& task) {
    return std::string(base::trimmed(base::try_read_file(job.state_folder + "/ended" + task, 100).text));
  };
  std::vector<std::pair<std::string, Status>> tasks;
  for (int64_t task = 0; task < tasks_of(job); ++task)
    tasks.emplace_back(fmt::format("task {}", task), status_of_code(code(fmt::format("-{}", task))));
  return tasks.empty() ? status_of_code(code("")) : worst_of(tasks);
}

Status accounted_task(const std::vector<std::string>& parts) {
  const std::string &state = parts[0], &code = parts[1];
  if (state == "COMPLETED") return {State::done, parts[2], ""};
  if (state.starts_with("CANCELLED")) return {State::stopped, parts[2], state};
  if (code.starts_with("75:"))
    return {State::saved, parts[2], "preempted and saved; submit it again to resume"};
  return {State::failed, parts[2], fmt::format("{}, exit code {}", state, code.substr(0, code.find(':')))};
}

Status accounted_status(const Submitted& job, Client& client) {
  const Answer answer =
      client.run({{"sacct", "--noheader", "--allocations", "--parsable2",
                   "--format=State,ExitCode,NodeList,JobID", "--jobs=" + job.id_of(kLabel)}});
  std::vector<std::pair<std::string, Status>> tasks;
  for (const std::string& line : base::split_lines(answer.ok() ? answer.output : "")) {
    if (base::trimmed(line).empty()) continue;
    const std::vector<std::string> parts = fields(line);
    if (parts[0].empty() || parts[0] == "RUNNING" || parts[0] == "PENDING") return ended_status(job);
    tasks.emplace_back("job " + parts[3], accounted_task(parts));
  }
  return tasks.empty() ? ended_status(job) : worst_of(tasks);
}

Status status(const Submitted& job, Client& client) {
  const Command command{
      {"squeue", "--noheader", "--me", "--array", "--format=%A|%T|%r|%N", "--name=" + job.id}};
  const Answer answer = client.run(command);
  if (!answer.ok()) return {State::unknown, "", answer.complaint(command)};
  const std::vector<std::string> lines = base::split_lines(answer.output);
  if (base::trimmed(answer.output).empty()) return accounted_status(job, client);
  Status status;
  for (const std::string& line : lines) {  // of an array: one that runs says more than one that waits
    const std::vector<std::string> parts = fields(line);
    if (parts[1].empty() || status.state == State::running) continue;
    if (parts[1] == "RUNNING") status = {State::running, parts[3], ""};
    if (parts[1] == "COMPLETING") status = {State::ending, parts[3], ""};
    if (parts[1] != "RUNNING" && parts[1] != "COMPLETING")
      status = {State::queued, "", parts[2].empty() ? parts[1] : parts[2]};
  }
  return status;
}

Logs logs(const Submitted& job, const LogsOptions& options) {
  std::error_code error;
  const std::string one = job.state_folder + "/log",
                    of_array = fmt::format("{}/log-{}", job.state_folder, options.node);
  const std::string file = std::filesystem::exists(of_array, error) ? of_array : one;
  return {.command = {{"tail", "-c", fmt::format("+{}", options.from + 1), file}}, .by_offset = true};
}

std::vector<std::string> why(const Submitted& job, const Status& status, Client& client) {
  if (status.state != State::queued) return {};
  const std::string number = job.id_of(kLabel), meaning = meaning_of(pending_reasons(), status.reason);
  std::vector<std::string> lines = {
      fmt::format("Slurm says {}: {}", base::quoted(status.reason),
                  meaning.empty() ? "see `man squeue`, JOB REASON CODES" : meaning)};
  const Answer start = client.run({{"squeue", "--noheader", "--start", "--format=%S", "--jobs=" + number}});
  const std::string time(base::trimmed(start.ok() ? start.output : ""));
  if (!time.empty() && time != "N/A") lines.push_back("Slurm expects to start it at " + time);
  return lines;
}

Command shell(const Submitted& job, int64_t node) {
  return {{"srun", "--jobid=" + job.id_of(kLabel), "--overlap", "--nodes=1", "--ntasks=1",
           fmt::format("--relative={}", node), "--pty", "bash", "-l"}};
}

// --test-only asks the scheduler for all of it (partition, account, qos, nodes, GPUs) and submits nothing;
// what it says goes to standard error.
std::vector<Check> checks(const Place& place) {
  std::vector<std::string> partition = {"sinfo", "--noheader", "--format=%P %a %D"};
  if (!place.partition.empty()) partition.push_back("--partition=" + place.partition);
  std::vector<std::string> trial = {"sbatch", "--test-only", fmt::format("--nodes={}", place.nodes)};
  const std::pair<const char*, std::string> words[] = {
      {"--partition=", place.partition},
      {"--account=", place.account},
      {"--qos=", place.qos},
      {"--constraint=", place.constraint},
      {"--gpus-per-node=", place.gpus ? gpus_text(place) : ""},
      {"--time=", place.time.count ? minutes(place.time) : ""},
  };
  for (const auto& [name, value] : words) {
    if (!value.empty()) trial.push_back(name + value);
  }
  trial.insert(trial.end(), {"--wrap", "true"});
  const auto accepts = [](const Place&, const Answer&) { return std::string(); };
  return {
      {"client", {{"sbatch", "--version"}}}, {"partition", {partition}}, {"permissions", {trial}, accepts}};
}

}  // namespace

Target slurm_target() {
  return {.kind = "slurm",
          .summary = "a Slurm cluster, through sbatch; folders are shared with its nodes",
          .client = "sbatch",
          .example = "lockstep submit first.toml --to slurm --nodes 4 --gpus 8 --time 24h",
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
