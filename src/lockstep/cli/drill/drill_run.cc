#include "lockstep/cli/drill/drill_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/patience.h"
#include "lockstep/base/ring.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/descendants.h"
#include "lockstep/launch/start.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::cli {

namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int64_t kTail = 8192;

std::string tail_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const int64_t size = file.tellg(), from = std::max<int64_t>(0, size - kTail);
  std::string text(static_cast<size_t>(size - from), '\0');
  file.seekg(from);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

std::vector<json> events_of(const std::string& folder) {
  std::vector<json> found;
  for (const std::string& line : base::split_lines(base::try_read_file(folder + "/events.jsonl").text)) {
    json parsed = json::parse(line, nullptr, false);
    if (parsed.is_object() && parsed.contains("event")) found.push_back(std::move(parsed));
  }
  return found;
}

struct Logged {
  int64_t step;
  std::string loss;  // its bits
};

// The steps that a run's metrics.jsonl tells of, in its order.
std::vector<Logged> logged_steps(const std::string& folder) {
  std::vector<Logged> found;
  for (const std::string& line : base::split_lines(base::try_read_file(folder + "/metrics.jsonl").text)) {
    const json parsed = json::parse(line, nullptr, false);
    if (parsed.is_object() && parsed.contains("loss_hex"))
      found.push_back({parsed.value("step", int64_t{0}), parsed.value("loss_hex", "")});
  }
  return found;
}

}  // namespace

DrillRun::DrillRun(Options options) : options_(std::move(options)) {
  base::make_folders(options_.folder);
  start();
}

DrillRun::~DrillRun() {
  if (code()) return;
  ::kill(pid_, SIGKILL);  // its guard ends the ranks
  ::waitpid(pid_, nullptr, 0);
  for (int k = 0; k < 500 && !rank_processes().empty(); ++k) ::usleep(10000);
}

void DrillRun::start() {
  code_.reset();
  pid_ = run_command(options_.folder + ".console");
}

pid_t DrillRun::run_command(const std::string& console) const {
  std::vector<std::string> words = {"train"};
  words.insert(words.end(), options_.words.begin(), options_.words.end());
  words.insert(words.end(), {"--run", options_.folder});
  words = launch::own_command(words);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) throw base::IoError(532, "cannot start a training run: process limit reached");
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(126);
  ::setsid();
  const int out = ::open(console.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int in = ::open("/dev/null", O_RDONLY);
  ::dup2(in, STDIN_FILENO), ::dup2(out, STDOUT_FILENO), ::dup2(out, STDERR_FILENO);
  ::close_range(3, ~0u, 0);
  ::execv(pointers[0], pointers.data());
  ::_exit(127);
}

void DrillRun::start_again() {
  finish();
  start();
}

int DrillRun::start_beside() {
  const pid_t second = run_command(options_.folder + ".second");
  int status = 0;
  const bool ended = until([&] { return ::waitpid(second, &status, WNOHANG) == second; });
  if (!ended) ::kill(second, SIGKILL), ::waitpid(second, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int64_t DrillRun::step() const {
  const std::vector<std::string> lines = base::split_lines(tail_of(options_.folder + "/metrics.jsonl"));
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const json parsed = json::parse(*line, nullptr, false);
    if (parsed.is_object() && parsed.contains("loss_hex")) return parsed.value("step", int64_t{0});
  }
  return 0;
}

int64_t DrillRun::events(const std::string& name) const {
  int64_t count = 0;
  for (const json& one : events_of(options_.folder)) count += one["event"] == name;
  return count;
}

int64_t DrillRun::newest_start() const {
  int64_t step = 0;
  for (const json& one : events_of(options_.folder)) {
    if (one["event"] == "start") step = one.value("step", int64_t{0});
  }
  return step;
}

std::string DrillRun::newest_why(const std::string& name) const {
  std::string why;
  for (const json& one : events_of(options_.folder)) {
    if (one["event"] == name) why = one.value("why", "");
  }
  return why;
}

std::string DrillRun::metrics_differ_from(const std::string& folder) const {
  const std::vector<Logged> mine = logged_steps(options_.folder), theirs = logged_steps(folder);
  for (size_t k = 0; k < std::max(mine.size(), theirs.size()); ++k) {
    if (k >= mine.size()) return fmt::format("metrics.jsonl ends before step {}", theirs[k].step);
    if (k >= theirs.size()) return fmt::format("metrics.jsonl has another step {} at its end", mine[k].step);
    if (mine[k].step != theirs[k].step)
      return fmt::format("metrics.jsonl has step {} where step {} belongs", mine[k].step, theirs[k].step);
    if (mine[k].loss != theirs[k].loss)
      return fmt::format("the loss of step {} is {}, undisturbed {}", mine[k].step, mine[k].loss,
                         theirs[k].loss);
  }
  return "";
}

std::string DrillRun::params_hash() const {
  const std::string why = newest_why("finished"), before = "params_hash ";
  const size_t at = why.find(before);
  return at == std::string::npos ? "" : why.substr(at + before.size());
}

bool DrillRun::saving() const {
  try {
    const std::vector<base::RingEntry> phases =
        base::RingReader(watch::phase_path(options_.folder, 0)).entries();
    // Training goes on while a checkpoint is being written: a little after the copy is during the save.
    const auto fresh = [](const base::RingEntry& e) {
      return e.stamp.op == static_cast<uint16_t>(watch::Phase::save) &&
             (e.finished_ns == 0 || base::monotonic_ns() - e.finished_ns < 5000000);
    };
    return std::any_of(phases.begin(), phases.end(), fresh);
  } catch (const base::Error&) {
    return false;  // it is being replaced
  }
}

bool DrillRun::hears_signals() const {
  uint64_t heard = 0;
  for (const std::string& line :
       base::split_lines(base::try_read_file(fmt::format("/proc/{}/status", pid_)).text)) {
    if (line.starts_with("SigCgt:") || line.starts_with("SigBlk:"))
      heard |= std::strtoull(line.c_str() + 7, nullptr, 16);
  }
  return (heard >> (SIGTERM - 1) & 1) != 0;
}

std::vector<pid_t> DrillRun::rank_processes() const {
  // Below the launcher stands its guard, and below that the ranks.
  std::vector<pid_t> found;
  for (const pid_t one : launch::descendants_of(pid_)) {
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", one)), name);
    if (name != "lockstep-guard" && name != "lockstep-warden" && name != "lockstep-disk")
      found.push_back(one);
  }
  return found;
}

pid_t DrillRun::process_of(int rank) const {
  try {
    return base::RingReader(watch::ring_path(options_.folder, rank)).pid();
  } catch (const base::Error&) {
    return 0;
  }
}

std::optional<int> DrillRun::code() {
  int status = 0;
  if (!code_ && ::waitpid(pid_, &status, WNOHANG) == pid_)
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code_;
}

int64_t DrillRun::written() const {
  int64_t bytes = 0;
  for (const std::string& path : {options_.folder + "/metrics.jsonl", options_.folder + "/events.jsonl",
                                  options_.folder + ".console"}) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

int64_t DrillRun::processor_time() const {
  std::vector<pid_t> processes = rank_processes();
  if (processes.empty()) processes.push_back(pid_);
  int64_t ticks = 0;
  for (const pid_t one : processes) {
    std::string stat;
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", one)), stat);
    const size_t name_end = stat.rfind(") ");
    if (name_end == std::string::npos) continue;
    std::istringstream fields(stat.substr(name_end + 2));
    std::string skipped;
    int64_t user = 0, system = 0;
    for (int k = 0; k < 11; ++k) fields >> skipped;  // utime and stime are the 12th and 13th behind the name
    if (fields >> user >> system) ticks += user + system;
  }
  return ticks;
}

bool DrillRun::until(const std::function<bool()>& what) {
  constexpr int kTimesBusy = 10;
  constexpr auto kLook = std::chrono::milliseconds(200);
  const auto silence =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.patience));
  base::Patience idle(silence), busy(kTimesBusy * silence);
  Clock::time_point looked = Clock::now();
  for (;;) {
    if (what()) return true;
    if (code()) return what();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (Clock::now() - looked < kLook) continue;
    looked = Clock::now();
    const int64_t bytes = written();
    if (!idle.lasts(bytes + processor_time()) || !busy.lasts(bytes)) return false;
  }
}

int DrillRun::finish() {
  until([] { return false; });
  if (code()) return *code_;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  code_ = -1;
  return -1;
}

std::string DrillRun::last_lines() const {
  std::vector<std::string> lines = base::split_lines(tail_of(options_.folder + ".console"));
  if (lines.size() > 6) lines.erase(lines.begin(), lines.end() - 6);
  return base::join(lines, "\n");
}

}  // namespace lockstep::cli
