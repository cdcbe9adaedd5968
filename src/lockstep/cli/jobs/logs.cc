// lockstep logs: what a submitted run has printed; -f: as it prints it, until it ends.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/jobs/submit.h"

namespace lockstep::cli {
namespace {

constexpr auto kPause = std::chrono::milliseconds(500);
constexpr int kRoundsPerStatus = 4;  // a place is not asked twice a second

// Prints what is new; false: the place could not be asked.
bool print_more(const jobs::Submitted& job, jobs::LogsOptions& options, jobs::Client& client) {
  const jobs::Answer answer = client.run(jobs::find_target(job.place.kind).logs(job, options).command);
  if (!answer.ok()) return false;
  std::fwrite(answer.output.data(), 1, answer.output.size(), stdout);
  std::fflush(stdout);
  options.from += static_cast<int64_t>(answer.output.size());
  return true;
}

int follow(const jobs::Submitted& job, jobs::LogsOptions options, jobs::Client& client) {
  std::string unknown;  // why its state is, as last said
  for (int round = 0;; ++round) {
    print_more(job, options, client);
    if (std::ferror(stdout)) return 0;  // nobody reads any more
    if (round % kRoundsPerStatus == 0) {
      const jobs::Status status = jobs::status_of(job, client);
      if (jobs::has_ended(status.state) || status.state == jobs::State::interrupted) {
        print_more(job, options, client);
        remark("lockstep: {} {}{}\n", job.id, jobs::name_of(status.state),
               status.reason.empty() ? "" : ": " + status.reason);
        return 0;
      }
      if (status.state == jobs::State::unknown && status.reason != unknown)
        remark("lockstep: the state of {} is not known: {}; Ctrl-C ends this\n", job.id, status.reason);
      unknown = status.state == jobs::State::unknown ? status.reason : "";
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

int logs_command(Arguments& arguments) {
  std::string name;
  bool following = false;
  int64_t node = 0;
  arguments.positional("RUN", name, "a job's id, or the name of its run (the newest)");
  arguments.flag("--follow,-f", following, "until the run ends");
  arguments.option("--node", node, "of this machine or array task; default: 0, whose rank 0 prints for all");
  arguments.example("lockstep logs first -f", "follow the newest job of the run `first`");
  if (!arguments.parse()) return 0;
  if (name.empty()) throw base::ConfigError(109, "logs needs a job: lockstep logs RUN");
  const jobs::Ledger ledger(jobs::jobs_folder());
  const jobs::Submitted job = jobs::find_job(ledger, name);
  const jobs::LogsOptions options{.node = node, .from = 0, .follow = following};
  const jobs::Logs logs = jobs::find_target(job.place.kind).logs(job, options);
  jobs::ProcessClient client;
  if (!logs.by_offset) return client.attach(logs.command);
  if (following) return follow(job, options, client);
  const jobs::Answer answer = client.run(logs.command);
  if (!answer.ok())
    throw base::IoError(729, fmt::format("{} has no output yet, or it is out of reach: {}", job.id,
                                         answer.complaint(logs.command)));
  std::fwrite(answer.output.data(), 1, answer.output.size(), stdout);
  return 0;
}

}  // namespace lockstep::cli
