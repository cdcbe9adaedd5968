#include "lockstep/launch/schedulers/node_address.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/launch/rendezvous/network.h"

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{20};  // a busy controller takes its time
constexpr size_t kMostBytes = 1 << 20;

// What arrives until the other end is closed, or patience is.
std::string read_all(int file) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  std::string text;
  char piece[4096];
  while (text.size() < kMostBytes && Clock::now() < deadline) {
    pollfd source{file, POLLIN, 0};
    if (::poll(&source, 1, 100) <= 0) continue;
    const ssize_t got = ::read(file, piece, sizeof piece);
    if (got <= 0) break;
    text.append(piece, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

// No shell between: the name comes from the environment.
std::string ask_slurm(const std::string& node) {
  int ends[2];
  if (node.starts_with('-') || ::pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const char* words[] = {"scontrol", "--oneliner", "show", "node", node.c_str(), nullptr};
  pid_t child = 0;
  const bool started =
      ::posix_spawnp(&child, words[0], &actions, nullptr, const_cast<char**>(words), ::environ) == 0;
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string answer = started ? read_all(ends[0]) : "";
  ::close(ends[0]);
  if (started) {
    ::kill(child, SIGKILL);  // it has said all, or is too slow
    ::waitpid(child, nullptr, 0);
  }
  return answer;
}

std::optional<std::string> node_addr_in(std::string_view answer) {
  constexpr std::string_view kName = "NodeAddr=";
  size_t begin = answer.find(kName);
  while (begin != std::string_view::npos && begin > 0 && answer[begin - 1] != ' ' &&
         answer[begin - 1] != '\n') {
    begin = answer.find(kName, begin + 1);
  }
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string_view rest = answer.substr(begin + kName.size());
  const std::string_view value = rest.substr(0, rest.find_first_of(" \t\r\n"));
  if (value.empty() || value == "(null)") return std::nullopt;
  return std::string(value);
}

std::string first_host(const Scheduled& scheduled, const AskScheduler& ask) {
  const std::string& name = scheduled.first_host;
  if (scheduled.scheduler != "Slurm" || name_resolves(name)) return name;
  const std::optional<std::string> address = node_addr_in(ask(name));
  if (address && name_resolves(*address)) return *address;
  throw base::ConfigError(
      555,
      fmt::format("cannot find the job's first node {}: its name does not resolve here, and Slurm says {}; "
                  "give --rdzv-endpoint HOST:PORT with its address",
                  name,
                  address ? fmt::format("NodeAddr={}, which does not resolve either", *address) : "nothing"));
}

}  // namespace lockstep::launch
