#include "lockstep/jobs/submit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/process_birth.h"
#include "lockstep/base/text.h"

namespace lockstep::jobs {
namespace {

constexpr auto kPatienceWithEnds = std::chrono::seconds(3);  // most places are done by then

void write_files(const Job& job, const Plan& plan) {
  base::make_folders(job.state_folder);
  ::chmod(job.state_folder.c_str(), 0700);
  for (const File& file : plan.files) {
    const std::string path = job.state_folder + "/" + file.name;
    base::make_folders(path.substr(0, path.rfind('/')));
    base::write_file_durable(path, file.text);
    ::chmod(path.c_str(), file.secret ? 0600 : 0644);
  }
}

enum class Existence { no, yes, unknown };

// Asks the place. The id, where it says one, is the resource's from now on.
Existence exists(Resource& resource, Client& client, std::string& why) {
  const Command command = find_command(resource);
  const Answer answer = client.run(command);
  if (!answer.ok()) {
    why = answer.complaint(command);
    return Existence::unknown;
  }
  const std::vector<std::string> lines = base::split_lines(answer.output);
  for (const std::string& line : lines) {
    if (base::trimmed(line).empty()) continue;
    resource.id = base::trimmed(line);
    return Existence::yes;
  }
  return Existence::no;
}

// Removes one thing that is open in the ledger; what is left of it.
std::vector<Remaining> remove(Resource resource, Ledger& ledger, Client& client) {
  std::string why;
  Existence there = exists(resource, client, why);
  if (there == Existence::no) {
    ledger.gone(resource, "the place has no such thing");
    return {};
  }
  if (there == Existence::unknown && resource.id.empty())
    return {{resource, fmt::format("it may exist: {}", why)}};
  const Command command = remove_command(resource);
  const Answer answer = client.run(command);
  const auto deadline = std::chrono::steady_clock::now() + kPatienceWithEnds;
  do {
    there = exists(resource, client, why);
    if (there == Existence::no) {
      ledger.gone(resource, "removed");
      return {};
    }
    if (!answer.ok() || there == Existence::unknown) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  } while (std::chrono::steady_clock::now() < deadline);
  if (!answer.ok()) return {{resource, answer.complaint(command)}};
  return {{resource, there == Existence::unknown ? why : "it was told to end and is ending", true}};
}

std::vector<Remaining> remove_all(const Submitted& job, Ledger& ledger, Client& client) {
  std::vector<Remaining> left;
  for (auto resource = job.resources.rbegin(); resource != job.resources.rend(); ++resource) {
    if (resource->state == Resource::State::gone) continue;
    for (Remaining& one : remove(*resource, ledger, client)) left.push_back(std::move(one));
  }
  return left;
}

Submitted known(const Ledger& ledger, const std::string& id) {
  for (Submitted& job : ledger.jobs()) {
    if (job.id == id) return std::move(job);
  }
  throw base::IoError(
      727, fmt::format("{} no longer has the job {} that was just written there", ledger.file(), id));
}

[[noreturn]] void fail(const Job& job, const std::string& why, Ledger& ledger, Client& client) {
  std::string left;
  for (const Remaining& one : remove_all(known(ledger, job.id), ledger, client))
    left += fmt::format("; {} could not be removed ({})", one.resource.label, one.why);
  ledger.close_job(job.id, Submitted::Submission::failed);
  throw base::IoError(
      726, fmt::format("{} was not submitted: {}{}", job.id, why,
                       left.empty() ? "; nothing of it is left"
                                    : left + fmt::format("; `lockstep stop {}` tries again", job.id)));
}

// The ledger knows already that it was asked for: where its id cannot be added, `stop` finds it all the same.
void note_made(const Resource& resource, const std::string& id, Ledger& ledger) {
  try {
    ledger.has(resource, id);
  } catch (const base::Error& error) {
    throw base::IoError(727, fmt::format("{} was made ({}), but {}; it runs: `lockstep stop {}` removes it",
                                         resource.label, id, error.what(), resource.job));
  }
}

bool is_open(const Submitted& job) {
  for (const Resource& resource : job.resources) {
    if (resource.state != Resource::State::gone) return true;
  }
  return false;
}

}  // namespace

Submitted submit(const Job& job, const Plan& plan, Ledger& ledger, Client& client, const Say& say) {
  Submitted submitted;
  submitted.id = job.id;
  submitted.name = job.name;
  submitted.place = job.place;
  submitted.state_folder = job.state_folder;
  ledger.open_job(submitted);
  try {
    write_files(job, plan);
  } catch (const base::Error& error) {
    ledger.close_job(job.id, Submitted::Submission::failed);
    throw;
  }
  for (const Step& step : plan.steps) {
    for (const Resource& resource : step.makes) ledger.asks(resource);
    say(shell_line(step.command.words));
    const Answer answer = client.run(step.command);
    if (!answer.ok() && step.refused && step.refused(answer)) {
      for (const Resource& resource : step.makes) ledger.gone(resource, "the place refused to make it");
    }
    if (!answer.ok()) fail(job, answer.complaint(step.command), ledger, client);
    for (const Resource& resource : step.makes) {
      const std::string id = step.id_in ? step.id_in(answer.output) : resource.id;
      if (id.empty())
        fail(job, fmt::format("{} gave no id in {}", step.command.words.front(), base::quoted(answer.output)),
             ledger, client);
      note_made(resource, id, ledger);
    }
  }
  ledger.close_job(job.id, Submitted::Submission::complete);
  return known(ledger, job.id);
}

std::vector<Remaining> stop(const Submitted& job, Ledger& ledger, Client& client) {
  if (!job.stopped && is_open(job)) ledger.stopped(job.id);
  return remove_all(job, ledger, client);
}

Status status_of(const Submitted& job, Client& client) {
  if (job.submission == Submitted::Submission::failed)
    return {State::failed, "",
            is_open(job) ? "it was not submitted, and something of it is left" : "it was not submitted"};
  if (job.submission == Submitted::Submission::going_on) {
    if (base::still_lives(job.process, job.birth)) return {State::queued, "", "it is being submitted"};
    return {State::interrupted, "", "its submission was interrupted"};
  }
  Status status = find_target(job.place.kind).status(job, client);
  if (job.stopped && (has_ended(status.state) || status.state == State::unknown) &&
      status.state != State::done)
    return {State::stopped, status.where, "by lockstep stop"};
  return status;
}

std::vector<Orphan> orphans(Ledger& ledger, Client& client) {
  std::vector<Orphan> found;
  for (const Submitted& job : ledger.jobs()) {
    if (!is_open(job)) continue;
    const Status status = status_of(job, client);
    const bool over = has_ended(status.state) || status.state == State::interrupted;
    if (!over && status.state != State::unknown) continue;
    const std::string state = status.reason.empty() ? name_of(status.state) : status.reason;
    for (Resource resource : job.resources) {
      if (resource.state == Resource::State::gone) continue;
      std::string why;
      switch (exists(resource, client, why)) {
        case Existence::no:
          ledger.gone(resource, "the place has no such thing");
          break;
        case Existence::unknown:
          found.push_back({resource, why, false});
          break;
        case Existence::yes:
          found.push_back(
              {resource, (over ? "its job is " : "whether its job runs is not known: ") + state, over});
          break;
      }
    }
  }
  return found;
}

}  // namespace lockstep::jobs
