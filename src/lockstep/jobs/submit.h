// Submitting and stopping: a plan carried out step by step, with the ledger ahead of every step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/jobs/target.h"

namespace lockstep::jobs {

using Say = std::function<void(const std::string& line)>;

// Writes the files, runs the steps. If one fails, what was made before it is removed again, what may have
// been made in spite of the failure too, and IoError 726 quotes the client. What could not be removed stays
// open in the ledger and is named.
Submitted submit(const Job& job, const Plan& plan, Ledger& ledger, Client& client, const Say& say);

// What is left of the job is removed, newest first. Doing it twice is no error. Returns what still exists,
// each with the reason; empty: nothing does.
struct Remaining {
  Resource resource;
  std::string why;
  bool ending = false;  // the place has accepted the end and is at it
};
std::vector<Remaining> stop(const Submitted& job, Ledger& ledger, Client& client);

// The state of a job: an interrupted submission, else what the place says.
Status status_of(const Submitted& job, Client& client);

// Things that still exist though their job has ended, failed or was never completely submitted.
struct Orphan {
  Resource resource;
  std::string why;
  bool sure = true;  // false: the place did not tell whether it exists, or whether its job runs
};
std::vector<Orphan> orphans(Ledger& ledger, Client& client);

}  // namespace lockstep::jobs
