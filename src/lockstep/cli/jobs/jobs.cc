// lockstep jobs: what was submitted from here, and how it is; --orphans: what exists and should not.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/jobs/submit.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
constexpr size_t kShort = 20;  // jobs that are asked after without --all

void say_unreadable(const jobs::Ledger& ledger) {
  if (ledger.unreadable_lines() > 0)
    remark("lockstep: {} of {} cannot be read and {} skipped\n",
           ledger.unreadable_lines() == 1 ? "a line" : fmt::format("{} lines", ledger.unreadable_lines()),
           ledger.file(), ledger.unreadable_lines() == 1 ? "was" : "were");
}

// 1: it is not known of everything whether it exists.
int list_orphans(jobs::Ledger& ledger, bool as_json) {
  jobs::ProcessClient client;
  const std::vector<jobs::Orphan> found = jobs::orphans(ledger, client);
  const bool unsure = std::ranges::any_of(found, [](const jobs::Orphan& one) { return !one.sure; });
  json all = json::array();
  for (const jobs::Orphan& orphan : found)
    all.push_back({{"job", orphan.resource.job},
                   {"what", orphan.resource.label},
                   {"id", orphan.resource.id},
                   {"why", orphan.why},
                   {"sure", orphan.sure},
                   {"costs", orphan.resource.costs},
                   {"remove", jobs::remove_command(orphan.resource).words}});
  if (as_json) report_json(all, 2);
  if (!as_json && found.empty()) print("nothing is left behind\n");
  for (const jobs::Orphan& orphan : found) {
    if (as_json) break;
    const std::string id = orphan.resource.id.empty() ? "" : " " + orphan.resource.id;
    // Without its number there is no command of the place's that a person could use.
    const std::string by_hand =
        id.empty() ? "" : "    or: " + jobs::shell_line(jobs::remove_command(orphan.resource).words);
    print("{}{} of {} {} exist{}: {}\n  lockstep stop {}{}\n", orphan.resource.label, id, orphan.resource.job,
          orphan.sure ? "still" : "may", orphan.sure ? "s" : "", orphan.why, orphan.resource.job, by_hand);
  }
  return unsure ? 1 : 0;
}

}  // namespace

int jobs_command(Arguments& arguments) {
  bool orphans = false, everything = false, as_json = false;
  arguments.flag("--orphans", orphans,
                 "what still exists though its job has ended or was never fully submitted");
  arguments.flag("--all", everything, "all jobs, not only the newest 20");
  arguments.flag("--json", as_json, "print as JSON");
  arguments.example("lockstep jobs", "the newest jobs and their states");
  arguments.example("lockstep jobs --orphans", "what may cost money without need");
  if (!arguments.parse()) return 0;
  jobs::Ledger ledger(jobs::jobs_folder());
  if (orphans) return list_orphans(ledger, as_json);
  std::vector<jobs::Submitted> all = ledger.jobs();
  say_unreadable(ledger);
  const size_t skipped = everything || all.size() <= kShort ? 0 : all.size() - kShort;
  jobs::ProcessClient client;
  terminal::Table table({"job", "target", "submitted", "state", "where", "reason"});
  json report = json::array();
  for (size_t k = all.size(); k-- > skipped;) {
    const jobs::Submitted& job = all[k];
    const jobs::Status status = jobs::status_of(job, client);
    json resources = json::array();
    for (const jobs::Resource& resource : job.resources)
      resources.push_back({{"label", resource.label}, {"id", resource.id}});
    report.push_back({{"id", job.id},
                      {"name", job.name},
                      {"target", job.place.name},
                      {"kind", job.place.kind},
                      {"time", job.time},
                      {"state", jobs::name_of(status.state)},
                      {"where", status.where},
                      {"reason", status.reason},
                      {"folder", job.state_folder},
                      {"resources", resources}});
    table.add({job.id, job.place.name, job.time, jobs::name_of(status.state), status.where, status.reason});
  }
  if (as_json) report_json(report, 2);
  if (!as_json && all.empty()) print("nothing was submitted from here yet; see `lockstep submit --help`\n");
  if (!as_json && !all.empty()) print("{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
  if (!as_json && skipped) print("... and {} older (--all)\n", skipped);
  return 0;
}

}  // namespace lockstep::cli
