// From the words of the flags to Options: every check that needs nothing but the words.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/process/frameworks.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::launch {

namespace {

constexpr std::string_view kAgreedPort = ":auto";

[[noreturn]] void refuse(const std::string& flag, const std::string& word, const std::string& expected) {
  throw base::ConfigError(530, fmt::format("--{} {}: expected {}", flag, base::quoted(word), expected));
}

int number(const std::string& flag, const std::string& word, int64_t least, int64_t most) {
  const std::optional<int64_t> value = base::parse_number(word);
  if (!value || *value < least || *value > most) {
    refuse(flag, word, fmt::format("an integer from {} to {}", least, most));
  }
  return static_cast<int>(*value);
}

Duration seconds(const std::string& flag, const std::string& word) {
  const std::optional<double> value = base::parse_number<double>(word);
  if (!value || !(*value >= 0 && *value <= 1e7)) refuse(flag, word, "seconds, such as 30 or 0.5");
  return Duration(static_cast<int64_t>(*value * 1000));
}

std::vector<std::string> split(const std::string& text, char between) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(between, begin), text.size());
    parts.emplace_back(base::trimmed(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

void read_nodes(const std::string& word, Options& options) {
  const std::vector<std::string> parts = split(word, ':');
  if (parts.size() > 2) refuse("nnodes", word, "N or MIN:MAX");
  options.min_nodes = number("nnodes", parts[0], 1, kMostNodes);
  options.max_nodes = number("nnodes", parts.back(), 1, kMostNodes);
  if (options.min_nodes > options.max_nodes) refuse("nnodes", word, "MIN:MAX with MIN at most MAX");
}

void read_nproc(const std::string& word, Options& options) {
  options.nproc_kind = word == "auto"  ? Nproc::automatic
                       : word == "cpu" ? Nproc::cpu
                       : word == "gpu" ? Nproc::gpu
                                       : Nproc::given;
  if (options.nproc_kind != Nproc::given) return;
  if (!base::parse_number(word)) refuse("nproc-per-node", word, "a number, auto, cpu or gpu");
  options.nproc = number("nproc-per-node", word, 1, kMostLocalRanks);
}

void read_backend(const std::string& word) {
  if (word == "c10d" || word == "static") return;
  if (word.starts_with("etcd")) {
    throw base::ConfigError(530, fmt::format("--rdzv-backend {}: etcd is not supported; omit the option, and "
                                             "node 0 hosts Lockstep's own store at --rdzv-endpoint",
                                             base::quoted(word)));
  }
  refuse("rdzv-backend", word, "c10d or static");
}

// "host", "host:29400", "[::1]:29400", "::1".
void read_endpoint(const std::string& flag, const std::string& word, std::string& host, int& port) {
  std::string port_word;
  const size_t bracket = word.find(']');
  if (word.starts_with("[") && bracket != std::string::npos) {
    host = word.substr(1, bracket - 1);
    if (bracket + 1 < word.size()) {
      if (word[bracket + 1] != ':') refuse(flag, word, "HOST:PORT");
      port_word = word.substr(bracket + 2);
    }
  } else if (const size_t colon = word.rfind(':'); colon != std::string::npos && word.find(':') == colon) {
    host = word.substr(0, colon);
    port_word = word.substr(colon + 1);
  } else {
    host = word;
  }
  const bool odd = host.find_first_of(" \t\r\n/@") != std::string::npos;
  if (host.empty() || odd || host.size() > 255) refuse(flag, word, "HOST:PORT, such as node0.example:29400");
  if (!port_word.empty()) port = number(flag, port_word, 0, 65535);
}

void read_conf(const std::string& text, Options& options) {
  // torchrun's keys that mean nothing here are taken and ignored, so that its command lines work as they are.
  static const std::vector<std::string> ignored = {"read_timeout", "close_timeout", "store_type", "use_libuv",
                                                   "heartbeat_timeout"};
  std::vector<std::string> known = {"timeout", "join_timeout", "last_call_timeout", "node_timeout", "is_host",
                                    "rank",    "tls"};
  known.insert(known.end(), ignored.begin(), ignored.end());
  for (const std::string& part : split(text, ',')) {
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    if (equals == std::string::npos) refuse("rdzv-conf", part, "KEY=VALUE");
    const std::string key = part.substr(0, equals), value = part.substr(equals + 1);
    const std::string flag = "rdzv-conf " + key;
    if (key == "timeout" || key == "join_timeout") {
      options.join_timeout = seconds(flag, value);
    } else if (key == "last_call_timeout") {
      options.last_call = seconds(flag, value);
    } else if (key == "node_timeout") {
      options.node_timeout = std::max(seconds(flag, value), Duration(1000));
    } else if (key == "is_host") {
      options.is_host = value == "1" || value == "true" || value == "True";
    } else if (key == "tls") {
      options.tls = value == "1" || value == "true" || value == "True";
    } else if (key == "rank") {
      options.node_rank = number(flag, value, 0, kMostNodes - 1);
    } else if (std::find(ignored.begin(), ignored.end(), key) == ignored.end()) {
      const std::string near = base::nearest_word(key, known);
      refuse("rdzv-conf", part, near.empty() ? "one of " + base::join(known, ", ") : near + "=...");
    }
  }
}

StreamChoice read_streams(const std::string& flag, const std::string& word) {
  StreamChoice choice;
  if (word.find(':') == std::string::npos) {
    choice.everyone = number(flag, word, 0, 3);
    return choice;
  }
  for (const std::string& part : split(word, ',')) {
    const std::vector<std::string> pair = split(part, ':');
    if (pair.size() != 2) refuse(flag, word, "0 to 3, or LOCAL_RANK:0-3,...");
    choice.by_local_rank[number(flag, pair[0], 0, kMostLocalRanks - 1)] = number(flag, pair[1], 0, 3);
  }
  return choice;
}

std::vector<int> read_signals(const std::string& word) {
  std::vector<int> signals;
  for (const std::string& name : split(word, ',')) {
    if (name.empty()) continue;
    const int signal = signal_number(name);
    if (signal <= 0 || signal == SIGKILL || signal == SIGSTOP || signal == SIGCHLD) {
      refuse("signals-to-handle", name, "names of catchable signals, such as SIGTERM,SIGINT,SIGUSR1");
    }
    signals.push_back(signal);
  }
  return signals;
}

void read_endpoint(const Words& words, Options& options) {
  if (!words.master_port.empty()) options.master_port = number("master-port", words.master_port, 0, 65535);
  options.master_addr = words.master_addr;
  if (!words.rdzv_endpoint.empty() && !options.standalone) {
    options.endpoint_port = kDefaultPort;
    options.agreed_for = words.agreed_for;
    std::string endpoint = words.rdzv_endpoint;
    const bool derived = endpoint.ends_with(kAgreedPort);
    if (derived) {
      endpoint.resize(endpoint.size() - kAgreedPort.size());
      if (words.rdzv_id.empty())
        refuse("rdzv-endpoint", words.rdzv_endpoint, "--rdzv-id beside it, from which the port is derived");
      options.agreed_for = "run " + words.rdzv_id;
    }
    constexpr int kNone = -1;
    int port = kNone;
    read_endpoint("rdzv-endpoint", endpoint, options.endpoint_host, port);
    if (derived && port != kNone)
      refuse("rdzv-endpoint", words.rdzv_endpoint, "HOST:PORT or HOST:auto, not both");
    if (port != kNone) options.endpoint_port = port;
  } else if (!options.one_node() && !options.master_addr.empty()) {
    // torchrun's static rendezvous: the rendezvous is at the master's port; the ranks then get a fresh one.
    options.endpoint_host = options.master_addr;
    options.endpoint_port = options.master_port ? options.master_port : kDefaultPort;
    options.master_port = 0;
  }
  if (!options.one_node() && options.endpoint_host.empty()) {
    throw base::ConfigError(530, fmt::format("--nnodes {}: several nodes need a rendezvous; add "
                                             "--rdzv-endpoint HOST:PORT with node 0's address",
                                             words.nnodes));
  }
  if (options.node_rank >= options.max_nodes) {
    refuse("node-rank", std::to_string(options.node_rank),
           fmt::format("a number below the {} node{} of --nnodes", options.max_nodes,
                       options.one_node() ? "" : "s"));
  }
}

}  // namespace

Options read_options(const Words& words) {
  Options options;
  const auto given = [](const std::string& word) { return !word.empty(); };
  if (given(words.rdzv_backend)) read_backend(words.rdzv_backend);
  if (given(words.nnodes)) read_nodes(words.nnodes, options);
  if (given(words.nproc_per_node)) read_nproc(words.nproc_per_node, options);
  options.standalone = words.standalone;
  if (options.standalone && !options.one_node()) refuse("standalone", "--nnodes " + words.nnodes, "one node");
  if (given(words.rdzv_conf)) read_conf(words.rdzv_conf, options);
  if (given(words.node_rank)) options.node_rank = number("node-rank", words.node_rank, 0, kMostNodes - 1);
  read_endpoint(words, options);
  options.local_addr = words.local_addr;
  if (given(words.rdzv_id)) options.run_id = words.rdzv_id;
  if (options.run_id.size() > 200 || options.run_id.find('\n') != std::string::npos) {
    refuse("rdzv-id", options.run_id, "a short name");
  }
  options.secret_file = words.rdzv_secret_file;
  if (given(words.max_restarts))
    options.max_restarts = number("max-restarts", words.max_restarts, 0, 1000000);
  if (given(words.monitor_interval))
    options.monitor_interval = seconds("monitor-interval", words.monitor_interval);
  if (given(words.grace)) options.grace = seconds("grace", words.grace);
  if (given(words.hang_timeout)) options.hang_timeout = seconds("hang-timeout", words.hang_timeout);
  if (given(words.role)) options.role = words.role;
  options.log_dir = words.log_dir;
  if (given(words.redirects)) options.redirects = read_streams("redirects", words.redirects);
  if (given(words.tee)) options.tee = read_streams("tee", words.tee);
  if (given(words.local_ranks_filter)) {
    for (const std::string& part : split(words.local_ranks_filter, ',')) {
      options.local_ranks_filter.insert(number("local-ranks-filter", part, 0, kMostLocalRanks - 1));
    }
  }
  if (given(words.framework) && !find_framework(words.framework)) {
    std::vector<std::string> names;
    for (const Framework& row : frameworks()) names.push_back(row.name);
    refuse("framework", words.framework, base::listed(names, "or"));
  }
  options.framework = words.framework;
  options.numa_binding = words.numa_binding;
  const std::string& binding = options.numa_binding;
  if (given(binding) && binding != "node" && binding != "socket" && binding != "core-complex") {
    refuse("numa-binding", binding, "node, socket or core-complex");
  }
  options.signals = read_signals(given(words.signals_to_handle) ? words.signals_to_handle
                                                                : "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
  const std::string& method = words.start_method;
  if (given(method) && method != "spawn" && method != "fork" && method != "forkserver") {
    refuse("start-method", method, "spawn, fork or forkserver");
  }
  options.module = words.module, options.run_path = words.run_path;
  options.no_python = words.no_python && !words.run_path;  // as torchrun has it
  options.virtual_local_rank = words.virtual_local_rank;
  if (options.no_python && options.module)
    refuse("no-python", "--module", "only one of the two: a module needs python");
  return options;
}

int local_ranks(const Options& options, int gpus, int processors) {
  switch (options.nproc_kind) {
    case Nproc::given:
      return options.nproc;
    case Nproc::cpu:
      return std::max(processors, 1);
    case Nproc::automatic:
      return gpus > 0 ? gpus : std::max(processors, 1);
    case Nproc::gpu:
      break;
  }
  if (gpus == 0) {
    throw base::ConfigError(
        530, "--nproc-per-node gpu: no GPU is visible; `lockstep doctor` says why, or give a number");
  }
  return gpus;
}

namespace {

bool can_be_run(const std::string& path) {
  std::error_code ignored;
  return ::access(path.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(path, ignored);
}

std::string find_in_path(const std::string& name, const Variable& variable) {
  if (name.find('/') != std::string::npos) return can_be_run(name) ? name : "";
  for (const std::string& folder : split(variable("PATH").value_or("/usr/bin:/bin"), ':')) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (can_be_run(path)) return path;
  }
  return "";
}

std::string python(const Variable& variable) {
  const std::string wanted = variable("PYTHON_EXEC").value_or("");
  for (const std::string& name :
       wanted.empty() ? std::vector<std::string>{"python3", "python"} : std::vector{wanted}) {
    if (std::string path = find_in_path(name, variable); !path.empty()) return path;
  }
  throw base::ConfigError(531, wanted.empty()
                                   ? "there is no python3 in PATH; set PYTHON_EXEC to the interpreter"
                                   : fmt::format("PYTHON_EXEC = {} cannot be run", base::quoted(wanted)));
}

}  // namespace

std::vector<std::string> rank_command(const Options& options, const std::vector<std::string>& program,
                                      const Variable& variable) {
  if (program.empty())
    throw base::ConfigError(531, "launch needs a program: lockstep launch [options] PROGRAM [...]");
  const std::string& name = program[0];
  const bool script = name.ends_with(".py") || options.run_path;
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(name, ignored);
  std::vector<std::string> command;
  // A file that cannot be run by itself is taken for a Python script, as torchrun takes every file.
  if (!options.no_python && (options.module || script || (is_file && ::access(name.c_str(), X_OK) != 0))) {
    if (!options.module && !is_file)
      throw base::ConfigError(531, fmt::format("{}: no such script", base::quoted(name)));
    command = {python(variable), "-u"};
    if (options.module) command.push_back("-m");
    command.insert(command.end(), program.begin(), program.end());
    return command;
  }
  const std::string path =
      is_file && name.find('/') == std::string::npos && find_in_path(name, variable).empty()
          ? find_in_path("./" + name, variable)
          : find_in_path(name, variable);
  if (path.empty()) {
    throw base::ConfigError(531,
                            fmt::format("{}: {}", base::quoted(name),
                                        is_file ? "is not executable; run chmod +x" : "no such program"));
  }
  command = program;
  command[0] = path;
  return command;
}

}  // namespace lockstep::launch
