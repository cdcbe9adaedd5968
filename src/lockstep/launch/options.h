// The launcher's flags, with torchrun's names and meaning.
//
// Every flag is a row of flags(): the command line declares them from it (with dashes or underscores), and a
// flag that is not given is read from PET_NAME, as torchrun does. What was written is kept as text in Words;
// read_options() turns it into Options, or into a ConfigError 530 that names the flag, before anything is
// started.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep::launch {

using Duration = std::chrono::milliseconds;

struct Words {
  std::string nnodes, nproc_per_node, node_rank, master_addr, master_port, local_addr;
  std::string rdzv_backend, rdzv_endpoint, rdzv_id, rdzv_conf, rdzv_secret_file;
  std::string max_restarts, monitor_interval, grace, role;
  std::string log_dir, redirects, tee, local_ranks_filter, numa_binding, signals_to_handle, framework;
  std::string start_method, event_log_handler, hang_timeout;
  std::string agreed_for;  // no flag: a scheduler's job, from which nodes derive the port of their endpoint
  bool standalone = false, no_python = false, module = false, run_path = false, virtual_local_rank = false;
};

struct Flag {
  const char* name;          // "nproc-per-node"
  const char* letter;        // "-t", or ""
  std::string Words::*text;  // one of these two
  bool Words::*on;
  const char* help;
  bool any_program_only = false;  // means nothing to our own trainer
};
const std::vector<Flag>& flags();
// {"--nproc-per-node", "--nproc_per_node", "--nproc"}: with underscores as torchrun's older ones.
std::vector<std::string> spellings(const Flag& flag);

using Variable = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_variable(const std::string& name);  // getenv

// Fills the flags that were not given from PET_*.
void take_environment(Words& words, const Variable& variable);

// Which of a rank's two streams: bit 1 is standard output, bit 2 standard error, as in torchrun's 0 to 3.
enum Streams : int { kNone = 0, kOut = 1, kErr = 2, kBoth = 3 };

// "3" for every local rank, or "0:1,1:3" for some.
struct StreamChoice {
  int everyone = kNone;
  std::map<int, int> by_local_rank;
  int of(int local_rank) const;
};

enum class Nproc { given, automatic, cpu, gpu };

struct Options {
  int min_nodes = 1, max_nodes = 1;
  Nproc nproc_kind = Nproc::given;
  int nproc = 1;              // when given
  int node_rank = -1;         // -1: assigned at the rendezvous
  std::string master_addr;    // empty: node 0's address
  int master_port = 0;        // 0: a fresh one each attempt
  std::string local_addr;     // this node's address, as the others reach it
  std::string endpoint_host;  // of the rendezvous; empty: one node
  int endpoint_port = 0;
  std::string agreed_for;       // from what the nodes derive the port; empty: it is given
  std::optional<bool> is_host;  // whether this node holds the store; empty: found out
  std::string run_id = "none";
  std::string secret_file;
  bool tls = false;  // of the store: --rdzv-conf tls=true, on every node
  bool standalone = false;
  int max_restarts = 0;
  Duration monitor_interval{100};
  Duration grace{30000};     // from SIGTERM to SIGKILL
  Duration hang_timeout{0};  // of programs that are not ours: a rank that waits so long is a hang; 0: never
  Duration join_timeout{600000};
  Duration last_call{30000};     // how long a roll call with enough nodes waits for more
  Duration node_timeout{15000};  // a node that says nothing for so long has vanished
  std::string role = "default";
  std::string log_dir;
  StreamChoice redirects, tee;
  std::set<int> local_ranks_filter;  // empty: all
  std::string numa_binding;          // "", "node", "socket", "core-complex"
  std::vector<int> signals = {};     // forwarded to the ranks
  std::string framework;             // of process/frameworks.h; empty: torchrun's variables alone
  bool no_python = false, module = false, run_path = false;
  bool virtual_local_rank = false;  // every rank has LOCAL_RANK 0 and sees its own GPU alone
  bool one_node() const { return max_nodes == 1; }
};
constexpr int kDefaultPort = 29400;
constexpr int kMostNodes = 65536, kMostLocalRanks = 4096;

Options read_options(const Words& words);

// How many ranks this node runs. ConfigError 530: gpu is asked for and there is none.
int local_ranks(const Options& options, int gpus, int processors);

// The rank's command: the interpreter for a Python script, the program itself otherwise. ConfigError 531 when
// it cannot be started: no such file, not executable.
std::vector<std::string> rank_command(const Options& options, const std::vector<std::string>& program,
                                      const Variable& variable);

}  // namespace lockstep::launch
