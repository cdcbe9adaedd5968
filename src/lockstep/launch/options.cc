#include "lockstep/launch/options.h"

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/environment.h"

namespace lockstep::launch {

const std::vector<Flag>& flags() {
  static const std::vector<Flag> rows = {
      {"nnodes", "", &Words::nnodes, nullptr, "number of nodes: N, or MIN:MAX (elastic)"},
      {"nproc-per-node", "", &Words::nproc_per_node, nullptr,
       "ranks on this node: a number, auto, cpu or gpu"},
      {"node-rank", "", &Words::node_rank, nullptr, "rank of this node; default: assigned at rendezvous"},
      {"master-addr", "", &Words::master_addr, nullptr, "MASTER_ADDR of the ranks; default: node 0's address",
       true},
      {"master-port", "", &Words::master_port, nullptr,
       "MASTER_PORT of the ranks; default: a free one for each attempt", true},
      {"local-addr", "", &Words::local_addr, nullptr, "address at which other nodes reach this one"},
      {"rdzv-backend", "", &Words::rdzv_backend, nullptr, "c10d or static: both use Lockstep's own store"},
      {"rdzv-endpoint", "", &Words::rdzv_endpoint, nullptr,
       "HOST[:PORT] of the rendezvous; default port 29400; HOST:auto derives free ones from --rdzv-id"},
      {"rdzv-id", "", &Words::rdzv_id, nullptr, "run id, the same on every node"},
      {"rdzv-conf", "", &Words::rdzv_conf, nullptr,
       "KEY=VALUE,...: join_timeout, last_call_timeout, node_timeout (seconds), is_host"},
      {"rdzv-secret-file", "", &Words::rdzv_secret_file, nullptr, "file (mode 0600) with the run's secret"},
      {"standalone", "", nullptr, &Words::standalone, "single node, no rendezvous"},
      {"max-restarts", "", &Words::max_restarts, nullptr, "number of restarts of all ranks after a failure"},
      {"monitor-interval", "", &Words::monitor_interval, nullptr,
       "seconds to collect failures before reporting the first"},
      {"grace", "", &Words::grace, nullptr, "seconds between SIGTERM and SIGKILL"},
      {"hang-timeout", "", &Words::hang_timeout, nullptr,
       "seconds that a rank may wait for others before the one that lags is named and all are ended", true},
      {"role", "", &Words::role, nullptr, "ROLE_NAME of the ranks", true},
      {"log-dir", "", &Words::log_dir, nullptr, "folder for the ranks' logs", true},
      {"redirects", "-r", &Words::redirects, nullptr,
       "redirect to files: 0 none, 1 stdout, 2 stderr, 3 both, or 0:1,1:3 per local rank", true},
      {"tee", "-t", &Words::tee, nullptr, "write to files and to the console; values as for --redirects",
       true},
      {"local-ranks-filter", "", &Words::local_ranks_filter, nullptr,
       "show only these local ranks on the console: 0,1", true},
      {"numa-binding", "", &Words::numa_binding, nullptr,
       "pin each rank to its node, socket or core-complex"},
      {"signals-to-handle", "", &Words::signals_to_handle, nullptr,
       "signals forwarded to the ranks: SIGTERM,SIGINT"},
      {"framework", "", &Words::framework, nullptr,
       "also set the variables of tensorflow (TF_CONFIG), jax or deepspeed scripts", true},
      {"no-python", "", nullptr, &Words::no_python, "run PROGRAM directly, without python", true},
      {"module", "-m", nullptr, &Words::module, "PROGRAM is a Python module", true},
      {"run-path", "", nullptr, &Words::run_path, "PROGRAM is a Python script, whatever its name", true},
      {"virtual-local-rank", "", nullptr, &Words::virtual_local_rank,
       "every rank has LOCAL_RANK 0 and sees only its own GPU", true},
      {"start-method", "", &Words::start_method, nullptr, "accepted for compatibility with torchrun; ignored",
       true},
      {"event-log-handler", "", &Words::event_log_handler, nullptr,
       "accepted for compatibility with torchrun; ignored", true},
  };
  return rows;
}

std::vector<std::string> spellings(const Flag& flag) {
  const std::string dashes = std::string("--") + flag.name;
  std::string underscores = dashes;
  std::replace(underscores.begin() + 2, underscores.end(), '-', '_');
  std::vector<std::string> all = {dashes};
  if (underscores != dashes) all.push_back(underscores);
  if (std::string(flag.name) == "nproc-per-node") all.push_back("--nproc");
  if (*flag.letter != '\0') all.push_back(flag.letter);
  return all;
}

std::optional<std::string> process_variable(const std::string& name) { return base::environment(name); }

void take_environment(Words& words, const Variable& variable) {
  for (const Flag& flag : flags()) {
    std::string name = std::string("PET_") + flag.name;
    for (char& letter : name) letter = letter == '-' ? '_' : static_cast<char>(std::toupper(letter));
    const std::optional<std::string> value = variable(name);
    if (!value || value->empty()) continue;
    if (flag.text && (words.*flag.text).empty()) words.*flag.text = *value;
    if (flag.on && !(words.*flag.on)) words.*flag.on = *value == "1" || *value == "true" || *value == "True";
  }
}

int StreamChoice::of(int local_rank) const {
  const auto found = by_local_rank.find(local_rank);
  return found == by_local_rank.end() ? everyone : found->second;
}

}  // namespace lockstep::launch
