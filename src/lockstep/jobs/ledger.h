// Everything that was asked for, on disk before it is asked for: what a lost terminal leaves, this still
// names.
//
//     ledger.open_job(submitted);
//     ledger.asks(resource);             // fsync'd; then the client is run
//     ledger.has(resource, "4711");      // or gone(resource, why)
//
// ~/.local/state/lockstep/jobs/ledger.jsonl: a line an event, appended under a lock by any number of
// processes. A resource carries the commands that find and remove it, so that `stop` needs nothing else and
// a person can run them by hand. A half-written last line, left by a crash, was never acted on and is
// skipped.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/process_birth.h"
#include "lockstep/jobs/client.h"
#include "lockstep/jobs/place.h"

namespace lockstep::jobs {

// {id} in the words stands for the place's own id, once it is known.
struct Resource {
  enum class State { asked, made, gone };
  std::string job;                // its tag
  std::string label;              // one per job: "slurm job", "host gpu1"
  std::vector<std::string> find;  // prints the place's id, or nothing where there is no such thing
  std::vector<std::string> remove;
  bool costs = true;  // as long as it exists
  std::string id = {};
  State state = State::asked;
};
Command find_command(const Resource& resource);
Command remove_command(const Resource& resource);

struct Submitted {
  enum class Submission { going_on, complete, failed };
  std::string id, name, time;  // time: when, in UTC
  Place place;
  std::string state_folder;
  Submission submission = Submission::going_on;  // still so when its process is gone: interrupted
  int64_t process = 0;                           // that submits
  base::ProcessBirth birth;                      // its
  bool stopped = false;                          // by `lockstep stop`
  std::vector<Resource> resources;               // in the order they were asked for

  std::string id_of(const std::string& label) const;  // empty: not known
};

class Ledger {
 public:
  explicit Ledger(std::string folder);  // made when first written

  void open_job(const Submitted& job);
  void asks(const Resource& resource);
  void has(const Resource& resource, const std::string& id);
  void gone(const Resource& resource, const std::string& why);
  void close_job(const std::string& job, Submitted::Submission how);
  void stopped(const std::string& job);

  std::vector<Submitted> jobs() const;                  // oldest first
  int unreadable_lines() const { return unreadable_; }  // of the last jobs()

  const std::string& folder() const { return folder_; }
  std::string file() const { return folder_ + "/ledger.jsonl"; }

 private:
  void append(const std::string& line);
  std::string folder_;
  mutable int unreadable_ = 0;
};

std::string jobs_folder();  // $XDG_STATE_HOME/lockstep/jobs

bool has_job(const Ledger& ledger, const std::string& wanted);  // by id or by name
// By id, or by name where only one job has it (else the newest of that name). ConfigError 725.
Submitted find_job(const Ledger& ledger, const std::string& wanted);

}  // namespace lockstep::jobs
