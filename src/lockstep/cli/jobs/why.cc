// lockstep why, lockstep ssh: closer looks at one job.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/cli/see/why_run.h"
#include "lockstep/jobs/submit.h"

namespace lockstep::cli {

namespace {

[[noreturn]] void refuse_unknown(const std::string& name) {
  throw base::ConfigError(
      725,
      fmt::format("{} is no run folder, no run in runs/, and no submitted job; `lockstep jobs` lists those "
                  "submitted from here",
                  base::quoted(name)));
}

}  // namespace

int why_command(Arguments& arguments) {
  std::string name;
  bool as_json = false, replay = false;
  arguments.positional("RUN", name,
                       "a run folder, a run in runs/, or a submitted job: its id or its run's name");
  arguments.flag(
      "--replay", replay,
      "compute the step again at which the loss went wrong last, and name the blocks that changed most");
  arguments.flag("--json", as_json, "print as JSON");
  arguments.example("lockstep why runs/first", "where its time goes and what would help, or what ended it");
  arguments.example("lockstep why first-4711", "why a submitted job waits, or why it has failed");
  if (!arguments.parse()) return 0;
  if (name.empty()) throw base::ConfigError(109, "why needs a run or a job: lockstep why runs/first");
  const jobs::Ledger ledger(jobs::jobs_folder());
  // A job's folder may be here too: asked by name, the job answers; by path, the run.
  const std::string folder = run_folder_named(name);
  const bool is_path = folder == name, is_job = jobs::has_job(ledger, name);
  if (!folder.empty() && (is_path || !is_job)) return why_run(folder, {.json = as_json, .replay = replay});
  if (!is_job) refuse_unknown(name);
  const jobs::Submitted job = jobs::find_job(ledger, name);
  jobs::ProcessClient client;
  const jobs::Status status = jobs::status_of(job, client);
  std::vector<std::string> lines;
  if (job.submission == jobs::Submitted::Submission::complete)
    lines = jobs::find_target(job.place.kind).why(job, status, client);
  if (lines.empty() && !status.reason.empty()) lines = {status.reason};
  if (as_json) {
    report_json(nlohmann::json{{"id", job.id}, {"state", jobs::name_of(status.state)}, {"why", lines}}, 2);
    return 0;
  }
  print("{} is {}{}\n", job.id, jobs::name_of(status.state),
        status.where.empty() ? "" : " on " + status.where);
  for (const std::string& line : lines) print("  {}\n", line);
  if (status.state == jobs::State::failed) print("  `lockstep logs {}` shows what it printed\n", job.id);
  if (status.state == jobs::State::interrupted)
    print("  `lockstep stop {}` removes what may have been made\n", job.id);
  return 0;
}

int ssh_command(Arguments& arguments) {
  std::string name;
  int64_t node = 0;
  bool dry_run = false;
  arguments.positional("RUN", name, "a job's id, or the name of its run (the newest)");
  arguments.option("--node", node, "which machine; default: 0");
  arguments.flag("--dry-run", dry_run, "print the command only");
  arguments.example("lockstep ssh first --node 2", "a shell on the third machine");
  if (!arguments.parse()) return 0;
  if (name.empty()) throw base::ConfigError(109, "ssh needs a job: lockstep ssh RUN");
  const jobs::Ledger ledger(jobs::jobs_folder());
  const jobs::Submitted job = jobs::find_job(ledger, name);
  const jobs::Command command = jobs::find_target(job.place.kind).shell(job, node);
  if (command.words.empty())
    throw base::ConfigError(
        722, fmt::format("a target of kind {} has no machine to open a shell on", job.place.kind));
  if (dry_run) {
    print("{}\n", jobs::shell_line(command.words));
    return 0;
  }
  jobs::ProcessClient client;
  return client.attach(command);
}

}  // namespace lockstep::cli
