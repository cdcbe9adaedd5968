#include "lockstep/verify/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::verify {
namespace {

using Clock = std::chrono::steady_clock;

// What tells a process that it is a rank or a task: the runs made here are neither.
bool seats_a_rank(std::string_view variable) {
  static constexpr std::array<std::string_view, 12> kStarts{
      "RANK=",        "WORLD_SIZE=",  "LOCAL_RANK=",    "LOCAL_WORLD_SIZE=", "GROUP_RANK=", "MASTER_ADDR=",
      "MASTER_PORT=", "TORCHELASTIC", "LOCKSTEP_STORE", "LOCKSTEP_SECRET",   "SLURM_",      "OMPI_"};
  return std::any_of(kStarts.begin(), kStarts.end(),
                     [&](std::string_view start) { return variable.starts_with(start); });
}

launch::Process process_of(const Job& job, const ChildOptions& options) {
  launch::Process process;
  process.words = {options.program, "train", job.recipe};
  process.words.insert(process.words.end(), job.overrides.begin(), job.overrides.end());
  process.words.insert(process.words.end(), {"--nproc", std::to_string(job.ranks), "--run", job.folder});
  process.words.insert(process.words.end(), {"--resume", job.resume.empty() ? "never" : job.resume});
  process.environment = launch::current_environment();
  std::erase_if(process.environment, seats_a_rank);
  return process;
}

pid_t start(launch::Process process, const std::string& log) {
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (out < 0 || in < 0) throw base::IoError(802, log + " cannot be written");
  process.in = in, process.out = out, process.err = out;
  std::fflush(nullptr);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    launch::exec_process(process);
  }
  ::close(in);
  ::close(out);
  if (child < 0) throw base::IoError(803, "cannot start a run: the system refuses another process");
  return child;
}

// Asks it to end, waits a little, then makes it.
void end(pid_t child) {
  ::kill(child, SIGTERM);
  for (int tenth = 0; tenth < 100; ++tenth) {
    if (::waitpid(child, nullptr, WNOHANG) == child) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

enum class Waited { over, too_long, stopped };

// Waits; a run that took too long, or is not wanted any more, has been ended.
Waited wait(pid_t child, const ChildOptions& options, int& status) {
  const auto limit = Clock::now() + std::chrono::duration<double>(options.most_seconds);
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (options.stop && options.stop->load() != 0) {
      end(child);
      return Waited::stopped;
    }
    if (Clock::now() > limit) {
      end(child);
      return Waited::too_long;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return Waited::over;
}

}  // namespace

std::string last_sentence(const std::string& output) {
  constexpr std::string_view kSays = "lockstep: ";
  std::vector<std::string> said;
  std::string last;
  bool goes_on = false;  // the next line belongs to the sentence
  for (const std::string& line : base::split_lines(output)) {
    if (base::trimmed(line).empty()) continue;
    last = base::trimmed(line);
    const size_t at = line.find(kSays);
    if (at != std::string::npos) {
      said.push_back(line.substr(at + kSays.size()));
    } else if (goes_on) {
      said.back() += ": " + last;
    }
    goes_on = at != std::string::npos && said.back().starts_with("this is a bug");
  }
  // The launcher says only which rank failed; that rank has said why.
  if (said.size() > 1 && said.back().starts_with("rank ")) said.pop_back();
  return said.empty() ? last : said.back();
}

Train train_by(const ChildOptions& options) {
  return [options](const Job& job) -> Ended {
    const std::string log = job.folder + ".log";
    int status = 0;
    const Waited waited = wait(start(process_of(job, options), log), options, status);
    if (waited == Waited::stopped) return {Ended::How::stopped, "stopped"};
    if (waited == Waited::too_long) {
      return {Ended::How::failed, fmt::format("it did not finish within {:.0f} s", options.most_seconds)};
    }
    const int code = launch::exit_code_of(status);
    if (code == 0) return {};
    const std::string said = last_sentence(base::try_read_file(log).text);
    if (code == 2) return {Ended::How::refused, said};
    return {Ended::How::failed, fmt::format("{} ({})", said, launch::describe_ending(status))};
  };
}

}  // namespace lockstep::verify
