// A kind of place: how a job becomes files and commands there, and how it is watched. One file in targets/
// and one row of target_table() each.
//
//     const Target& target = find_target("slurm");
//     const Plan plan = target.plan(job);              // pure: needs neither client nor login
//     const Status status = target.status(submitted, client);
#pragma once

#include <string>
#include <vector>

#include "lockstep/jobs/client.h"
#include "lockstep/jobs/job.h"
#include "lockstep/jobs/ledger.h"

namespace lockstep::jobs {

struct File {
  std::string name;  // in the job's state folder
  std::string text;
  bool secret = false;  // not printed, mode 0600
};

// One command of a submission. Where it makes something, that is in the ledger before.
struct Step {
  Command command;
  std::vector<Resource> makes = {};  // none: it only prepares
  // The place's id in what the client says; without it the resource's own id is known before.
  std::string (*id_in)(const std::string& output) = nullptr;
  // Whether an answer that is no success is the place's word that it made nothing; without it, it may have.
  bool (*refused)(const Answer& answer) = nullptr;
};

struct Plan {
  std::vector<File> files;
  std::vector<Step> steps;
  std::vector<std::string> remarks;  // what a person must do or know
};

enum class State { queued, running, ending, done, saved, failed, stopped, interrupted, unknown };
const char* name_of(State state);
bool has_ended(State state);

struct Status {
  State state = State::unknown;
  std::string where;   // nodes
  std::string reason;  // in the place's own words
};

// Log output: bytes from `from` on of one node's file, or whatever the client streams.
struct LogsOptions {
  int64_t node = 0;
  int64_t from = 0;  // bytes
  bool follow = false;
};
struct Logs {
  Command command;
  bool by_offset = false;  // the command prints the bytes behind LogsOptions::from and ends
};

// One question of `lockstep targets check`: a command that succeeds and prints something where all is well.
struct Check {
  const char* what;  // "login", "permissions", "quota"
  Command command;
  // What is wrong with an answer that came without an error; "": nothing.
  std::string (*problem)(const Place& place, const Answer& answer) = nullptr;
};

// What a time limit means, and so whether one may be set from a forecast (jobs/estimate.h).
enum class TimeLimit {
  none,           // the place has none, or its clock counts the wait for machines, too
  ends_the_job,   // nothing brings it back: a guard against machines that would be paid for ever
  saves_returns,  // the run saves and comes back by itself; the place may allow no more than its own limit
};

struct Target {
  const char* kind;
  const char* summary;
  const char* client;   // the program that is driven
  const char* example;  // of `lockstep submit`
  bool shares_files;    // with this machine: folder and program are by default those of here
  TimeLimit time_limit = TimeLimit::none;  // what becomes of a run that reaches `time`
  int64_t disk_gib = 0;  // of a machine for which no size is given; 0: the place does not say
  Plan (*plan)(const Job& job);
  Status (*status)(const Submitted& job, Client& client);
  Logs (*logs)(const Submitted& job, const LogsOptions& options);
  // Why it is where it is: sentences, the place's own words quoted, with a remedy.
  std::vector<std::string> (*why)(const Submitted& job, const Status& status, Client& client);
  Command (*shell)(const Submitted& job, int64_t node);
  std::vector<Check> (*checks)(const Place& place);  // in order; the first that fails is reported
};

const std::vector<Target>& target_table();
const Target& find_target(const std::string& kind);  // ConfigError 723

// A row of a table of reasons: text that a place says, and what it means with a remedy.
struct Reason {
  const char* text;
  const char* meaning;
};
// The meaning of the first row whose text is in `said`; nothing: "".
std::string meaning_of(const std::vector<Reason>& reasons, const std::string& said);

// ConfigError 722 for the first of these settings that is missing.
void require_settings(const Place& place, const std::vector<const char*>& names);

Target slurm_target();
Target ssh_target();
Target kubernetes_target();
Target vertex_target();
Target gce_target();
Target terraform_target();
Target tpu_target();
Target pbs_target();
Target lsf_target();
Target ray_target();
Target sagemaker_target();
Target azureml_target();

}  // namespace lockstep::jobs
