// lockstep stop: everything that was made for a job goes; twice is no error.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/jobs/submit.h"

namespace lockstep::cli {

int stop_command(Arguments& arguments) {
  std::string name;
  bool as_json = false;
  arguments.positional("RUN", name, "a job's id, or the name of its run (the newest)");
  arguments.flag("--json", as_json, "print as JSON");
  arguments.example("lockstep stop first", "its ranks save first, where the place gives them time");
  if (!arguments.parse()) return 0;
  if (name.empty()) throw base::ConfigError(109, "stop needs a job: lockstep stop RUN");
  jobs::Ledger ledger(jobs::jobs_folder());
  const jobs::Submitted job = jobs::find_job(ledger, name);
  jobs::ProcessClient client;
  const std::vector<jobs::Remaining> left = jobs::stop(job, ledger, client);
  nlohmann::json report{{"id", job.id}, {"remaining", nlohmann::json::array()}};
  std::string failed;
  for (const jobs::Remaining& one : left) {
    report["remaining"].push_back(
        {{"what", one.resource.label}, {"id", one.resource.id}, {"why", one.why}, {"ending", one.ending}});
    if (!one.ending)
      failed += fmt::format("{}{} {} ({})", failed.empty() ? "" : "; ", one.resource.label, one.resource.id,
                            one.why);
    if (one.ending && !as_json) print("{} {}: {}\n", one.resource.label, one.resource.id, one.why);
  }
  if (as_json) report_json(report, 2);
  if (!failed.empty())
    throw base::IoError(
        728, fmt::format("of {} there may still be {}; run the same command again", job.id, failed));
  if (!as_json && left.empty()) print("{} is stopped; nothing of it is left\n", job.id);
  return 0;
}

}  // namespace lockstep::cli
