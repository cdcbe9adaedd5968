// One model of a job: what runs, and where. A target turns it into files and commands (target.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/jobs/place.h"

namespace lockstep::jobs {

// A variable whose value is read where the run is. It never passes through this program.
struct Secret {
  enum class Keeper { file, kubernetes, google, aws, azure };
  std::string variable;
  Keeper keeper;
  std::string what;  // /home/me/.token, SECRET/KEY, SECRET[/VERSION], SECRET, VAULT/SECRET
};

struct Sweep {
  std::string key;  // empty: none
  std::vector<std::string> values;
};

struct Job {
  std::string id;                      // first-k3f9a2: the tag of everything that is made for it
  std::string name;                    // run.name
  std::string recipe;                  // the text of the recipe; empty: the built-in one
  std::vector<std::string> overrides;  // key=value
  std::vector<std::string> train;      // more words for `lockstep train` or `lockstep launch`
  std::vector<std::string> launch;     // a program and its words for `lockstep launch`, instead of a recipe
  std::string state_folder;            // here, with what was written for it
  std::string after;                   // the place's id of a job that must end well first
  Sweep sweep;                         // one run per value, as an array
  Place place;
};

// The run's name in letters that every place takes, and six random ones.
std::string make_id(const std::string& name);

// NAME=file:PATH and the like, as place.secrets has them. ConfigError 724, which quotes no value.
std::vector<Secret> secrets_of(const Place& place);
// NAME, value. ConfigError 724: a bad name, or one that is a secret's by its look.
std::vector<std::pair<std::string, std::string>> variables_of(const Place& place);

std::string fresh_secret();  // for a rendezvous: 64 random hexadecimal digits
// ConfigError 722: several machines of a place that cannot hand them a secret, and none of the user's.
// `keeper`: where one is kept there, and the words that name it.
constexpr const char* kSecretManager = "Secret Manager and add --secret LOCKSTEP_SECRET=google:NAME";
void require_shared_secret(const Place& place, const char* keeper = kSecretManager);

int64_t ranks_of(const Place& place);  // per node
std::string program_of(const Place& place);
// The run on one machine, as a shell reads it: lockstep train RECIPE KEY=VALUE ... --max-restarts N --nproc R
// FLAGS, or lockstep launch ... FLAGS PROGRAM ... `recipe_file` and `flags` (how machines find each other)
// are text for the shell already.
std::string train_line(const Job& job, const std::string& recipe_file, const std::string& flags = {});
// --nnodes N --node-rank NODE --rdzv-endpoint HOST:PORT --rdzv-id JOB; empty for one machine. `port` 0: the
// launchers derive ports from the job's id, since other jobs may be on the machines.
std::string rendezvous_flags(const Job& job, const std::string& node, const std::string& first_host,
                             int64_t port);
int64_t port_alone(const Place& place);  // where machines are the job's alone

// cat >FILE <<'MARK' ... MARK, with a mark that is no line of the text. FILE as the shell reads it.
std::string here_document(const std::string& file, const std::string& text);
// Lines of a shell script: the variables of the run, secrets read where it is.
std::string environment_lines(const Job& job);
// A whole script for a machine that shares nothing with this one: carries the recipe.
std::string self_contained_script(const Job& job, const std::string& flags = {});

// What follows `train() { exec ...; }` in a script where nobody else brings the run back: after exit code 75
// it runs again, at most place.preemptions times and `pause_s` later, by which time a machine that is taken
// away is gone. $code is the last one. TERM is passed on. Where $stop names a file, TERM makes it, and it
// ends the loop.
std::string return_loop(const Place& place, int pause_s);
// self_contained_script() with that loop.
std::string returning_script(const Job& job, const std::string& flags, int pause_s);

}  // namespace lockstep::jobs
