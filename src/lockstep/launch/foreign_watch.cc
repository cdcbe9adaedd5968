#include "lockstep/launch/foreign_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/watch/flight_recorder.h"

extern char** environ;

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{1000};
constexpr double kBusy = 0.1;  // of a processor: who polls for others now and then uses less

struct ProcessStat {
  char state = '?';
  double cpu_seconds = 0;  // used, or waited for
};

// That its main thread was ready to run and others had the processor: on a machine that is too full, this is
// not idleness.
double queued_seconds(int pid) {
  const std::string text = base::try_read_file(fmt::format("/proc/{}/schedstat", pid), 256).text;
  const size_t first = text.find(' '), second = text.find(' ', first + 1);
  if (first == std::string::npos || second == std::string::npos) return 0;
  return static_cast<double>(base::parse_number(text.substr(first + 1, second - first - 1)).value_or(0)) /
         1e9;
}

ProcessStat read_stat(int pid) {
  const std::string text = base::try_read_file(fmt::format("/proc/{}/stat", pid), 4096).text;
  const size_t name_end = text.rfind(')');  // a name may contain anything
  ProcessStat stat;
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return stat;
  stat.state = text[name_end + 2];
  size_t at = name_end + 2;
  double ticks = 0;
  for (int field = 3; field <= 15 && at != std::string::npos; ++field) {  // utime is field 14, stime 15
    const size_t space = text.find(' ', at);
    if (field >= 14)
      ticks += static_cast<double>(base::parse_number(text.substr(at, space - at)).value_or(0));
    at = space == std::string::npos ? space : space + 1;
  }
  stat.cpu_seconds = ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)) + queued_seconds(pid);
  return stat;
}

// What a short program prints; empty: it cannot be started, failed, or took too long.
std::string output_of(std::vector<std::string> words, std::chrono::milliseconds most) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  const auto until = Clock::now() + most;
  bool complete = false;
  while (failed == 0 && text.size() < (1 << 20)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd one{ends[0], POLLIN, 0};
    if (left <= 0 || ::poll(&one, 1, static_cast<int>(left)) <= 0) break;
    char buffer[4096];
    const ssize_t got = ::read(ends[0], buffer, sizeof(buffer));
    complete = got == 0;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  if (failed != 0) return "";
  if (!complete) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return complete && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "";
}

bool inside_collective(const ForeignRank& rank) {
  return std::any_of(rank.stack.begin(), rank.stack.end(), [](const std::string& frame) {
    return frame.find("torch/distributed/") != std::string::npos;
  });
}

// "all_reduce (torch/distributed/distributed_c10d.py:2810), called from step (train.py:31)": down to what the
// user wrote, also where PyTorch itself called Python's library (a DataLoader that waits for its worker).
std::string at_words(const ForeignRank& rank) {
  if (rank.stopped) return "is stopped (SIGSTOP or a debugger)";
  const auto torch = [](const std::string& frame) { return frame.find("torch/") != std::string::npos; };
  const auto first = std::find_if(rank.stack.begin(), rank.stack.end(), torch),
             caller = std::find_if_not(first, rank.stack.end(), torch);
  if (caller != rank.stack.end()) return fmt::format("is at {}, called from {}", rank.stack[0], *caller);
  if (!rank.stack.empty()) return "is at " + rank.stack[0];
  if (rank.idle < 1) return "computes something else";
  return rank.waits_in.empty() ? "waits" : fmt::format("waits in the kernel's {}", rank.waits_in);
}

// The ranks that the others wait for, by the best evidence that there is.
std::vector<const ForeignRank*> laggards(const std::vector<ForeignRank>& ranks, double seconds) {
  const std::function<bool(const ForeignRank&)> rules[] = {
      [](const ForeignRank& r) { return r.stopped; },
      [](const ForeignRank& r) { return !r.stack.empty() && !inside_collective(r); },
      [&](const ForeignRank& r) { return r.idle < seconds / 2 && !inside_collective(r); },  // some poll there
      [](const ForeignRank& r) { return r.waits_in.find("nanosleep") != std::string::npos; }};
  for (const auto& rule : rules) {
    std::vector<const ForeignRank*> found;
    for (const ForeignRank& rank : ranks) {
      if (rule(rank)) found.push_back(&rank);
    }
    if (!found.empty() && found.size() < ranks.size()) return found;
  }
  return {};
}

// All are in torch.distributed, and not at the same place: "rank 0 is at all_reduce (...), called from ...;
// ranks 1 2 are at broadcast (...), called from ...". Nothing: they are, or it is not known where one is.
std::string different_calls(const std::vector<ForeignRank>& ranks) {
  constexpr size_t kShown = 4;
  std::vector<std::pair<std::string, std::vector<std::string>>> places;
  for (const ForeignRank& rank : ranks) {
    if (!inside_collective(rank)) return "";
    const std::string words = at_words(rank);
    auto at = std::find_if(places.begin(), places.end(), [&](const auto& one) { return one.first == words; });
    if (at == places.end()) at = places.insert(at, {words, {}});
    at->second.push_back(std::to_string(rank.rank));
  }
  if (places.size() < 2) return "";
  std::vector<std::string> parts;
  for (size_t k = 0; k < std::min(kShown, places.size()); ++k) {
    const auto& [words, who] = places[k];
    parts.push_back(who.size() == 1
                        ? fmt::format("rank {} {}", who[0], words)
                        : fmt::format("ranks {} are{}", base::join(who, " "), words.substr(words.find(' '))));
  }
  if (places.size() > kShown) parts.push_back("...");
  return "ranks wait in different calls, and all must make the same ones in the same order: " +
         base::join(parts, "; ");
}

}  // namespace

std::optional<watch::Verdict> judge_foreign(const std::vector<ForeignRank>& ranks, double seconds,
                                            const std::string& from_flight_recorder, int behind) {
  double waited = 0;
  for (const ForeignRank& rank : ranks) {
    if (!rank.stopped) waited = std::max(waited, rank.idle);
  }
  if (ranks.empty() || waited < seconds) return std::nullopt;
  watch::Verdict verdict;
  verdict.waited = waited;
  const std::vector<const ForeignRank*> late = laggards(ranks, seconds);
  std::vector<std::string> waiting, parts;
  for (const ForeignRank& rank : ranks) {
    if (std::find(late.begin(), late.end(), &rank) == late.end())
      waiting.push_back(std::to_string(rank.rank));
  }
  for (const ForeignRank* rank : late) {
    verdict.culprits.push_back(rank->rank);
    parts.push_back(fmt::format("rank {} (process {}) lags: it {}", rank->rank, rank->pid, at_words(*rank)));
  }
  if (late.empty() && behind >= 0) verdict.culprits.push_back(behind);
  if (!from_flight_recorder.empty()) parts.push_back(from_flight_recorder);
  if (parts.empty()) {
    verdict.kind = watch::Verdict::Kind::stuck;
    if (const std::string different = different_calls(ranks); !different.empty()) parts.push_back(different);
  }
  if (parts.empty()) {
    parts.push_back(fmt::format("no rank on this node moves, and none stands out: rank {} {}", ranks[0].rank,
                                at_words(ranks[0])));
  }
  verdict.sentence = base::join(parts, "; ");
  if (!waiting.empty() && !late.empty())
    verdict.sentence +=
        fmt::format("; rank{} {} wait{} since {}", waiting.size() == 1 ? "" : "s", base::join(waiting, " "),
                    waiting.size() == 1 ? "s" : "", base::human_duration(waited));
  return verdict;
}

ForeignRank ForeignWatch::rank_now(const RunningRank& one) {
  const auto now = Clock::now();
  const ProcessStat stat = read_stat(one.pid);
  ForeignRank rank{.rank = one.rank,
                   .pid = one.pid,
                   .stopped = stat.state == 'T' || stat.state == 't',
                   .idle = 0,
                   .waits_in = {},
                   .stack = {}};
  auto [at, fresh] = seen_.try_emplace(one.pid, Seen{stat.cpu_seconds, now, now});
  Seen& seen = at->second;
  const double passed = std::chrono::duration<double>(now - seen.at).count();
  if (!fresh && passed > 0) {
    const bool at_disk = stat.state == 'D';  // reads its program, or a checkpoint
    if ((stat.cpu_seconds - seen.cpu_seconds) / passed > kBusy || at_disk) seen.busy_at = now;
    seen.cpu_seconds = stat.cpu_seconds, seen.at = now;
  }
  rank.idle = std::chrono::duration<double>(now - seen.busy_at).count();
  return rank;
}

// PyTorch writes a rank's dump when something is written to its pipe (NCCL); others may have left one.
void ForeignWatch::ask_recorders(const std::vector<RunningRank>& ranks) const {
  bool asked = false;
  for (const RunningRank& one : ranks) {
    const int pipe = ::open(fmt::format("{}/fr_pipe{}.pipe", folder_, one.rank).c_str(),
                            O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (pipe < 0) continue;
    asked |= ::write(pipe, "1", 1) == 1;
    ::close(pipe);
  }
  if (asked) std::this_thread::sleep_for(std::chrono::seconds(2));
}

std::optional<watch::Verdict> ForeignWatch::look(const std::vector<RunningRank>& ranks) {
  const auto now = Clock::now();
  if (now - looked_at_ < kInterval) return std::nullopt;
  looked_at_ = now;
  std::vector<ForeignRank> all;
  for (const RunningRank& one : ranks) all.push_back(rank_now(one));
  if (!judge_foreign(all, hang_seconds_)) return std::nullopt;
  stacks_.clear(), has_stacks_ = false;
  for (ForeignRank& rank : all) {
    rank.waits_in = base::try_read_file(fmt::format("/proc/{}/wchan", rank.pid), 256).text;
    if (rank.waits_in == "0") rank.waits_in.clear();
    constexpr std::chrono::seconds kForOne(5);
    if (!rank.stopped)
      rank.stack = frames_of(
          output_of({"py-spy", "dump", "--nonblocking", "--pid", std::to_string(rank.pid)}, kForOne));
    has_stacks_ = has_stacks_ || !rank.stack.empty();
    stacks_ += fmt::format("  rank {} (process {}) {}\n", rank.rank, rank.pid, at_words(rank));
    for (const std::string& frame : rank.stack) stacks_ += "      " + frame + "\n";
  }
  ask_recorders(ranks);
  std::vector<std::pair<int, watch::FlightDump>> dumps;
  for (const RunningRank& one : ranks) {
    constexpr int64_t kMostDump = 64 << 20;
    const base::ReadResult file = base::try_read_file(fmt::format("{}/fr_{}", folder_, one.rank), kMostDump);
    if (!file.problem.empty()) continue;
    dumps.emplace_back(one.rank, watch::read_flight_dump(file.text));
    if (!dumps.back().second.problem.empty())
      stacks_ += fmt::format("  rank {}: {}\n", one.rank, dumps.back().second.problem);
  }
  const watch::Behind behind = watch::who_is_behind(dumps);
  return judge_foreign(all, hang_seconds_, behind.sentence, behind.rank);
}

std::vector<std::pair<std::string, std::string>> flight_variables(const std::string& folder) {
  return {{"PYTHONFAULTHANDLER", "1"},  // a rank that is ended with SIGABRT prints its Python stacks
          {"TORCH_FR_BUFFER_SIZE", "2000"},
          {"TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"},
          {"TORCH_NCCL_DUMP_ON_TIMEOUT", "1"},
          {"TORCH_FR_DUMP_TEMP_FILE", folder + "/fr_"},
          {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", folder + "/fr_"},
          {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", folder + "/fr_pipe"}};
}

std::vector<std::string> frames_of(const std::string& py_spy) {
  std::vector<std::string> frames;
  std::string process;
  bool main = false;
  for (const std::string& line : base::split_lines(py_spy)) {
    if (line.starts_with("Process ")) process = line.substr(8, line.find(':') - 8);
    // Its threads have no names before `threading` is imported; the main thread has the number of the
    // process.
    if (line.starts_with("Thread "))
      main = line.find("\"MainThread\"") != std::string::npos || line.starts_with("Thread " + process + " ");
    if (!main || !line.starts_with("    ")) continue;
    std::string frame(base::trimmed(line));
    const size_t torch = frame.find("torch/"), open = frame.find('(');
    if (torch != std::string::npos && open != std::string::npos && open < torch)
      frame.erase(open + 1, torch - open - 1);
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace lockstep::launch
