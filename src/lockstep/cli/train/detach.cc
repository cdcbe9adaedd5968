#include "lockstep/cli/train/detach.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/see/run_events.h"

namespace lockstep::cli {

namespace {

// In the new process: nothing of the terminal is left.
[[noreturn]] void become(std::vector<std::string> words, int console) {
  ::setsid();
  ::signal(SIGHUP, SIG_IGN);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO), ::dup2(console, STDOUT_FILENO), ::dup2(console, STDERR_FILENO);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv("/proc/self/exe", pointers.data());
  ::_exit(127);
}

size_t first_steps(const std::string& folder) {
  size_t count = 0;
  for (const see::RunEvent& event : see::read_events(folder)) count += event.name == "first_step";
  return count;
}

// What it has said since it began.
std::string said_since(const std::string& console, uintmax_t size) {
  constexpr uintmax_t kMost = 64 << 10;
  std::error_code error;
  const uintmax_t now = std::filesystem::file_size(console, error);
  return error || now <= size ? ""
                              : see::read_tail(console, static_cast<int64_t>(std::min(kMost, now - size)));
}

}  // namespace

int detach(const std::vector<std::string>& words, const std::string& folder, bool as_json) {
  base::make_folders(folder + "/logs");
  const std::string console = folder + "/logs/console.log";
  const base::Descriptor file(::open(console.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file.number < 0)
    throw base::IoError(802, fmt::format("cannot write {}: {}", console, std::strerror(errno)));
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(console, error);
  const size_t before = first_steps(folder);
  std::vector<std::string> command{"lockstep", "train"};
  for (const std::string& word : words) {
    if (word != "--detach") command.push_back(word);
  }
  const pid_t child = ::fork();
  if (child < 0) throw base::IoError(802, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) become(std::move(command), file.number);
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (first_steps(folder) > before) {
      if (as_json) {
        report_json(nlohmann::json{{"run", folder}, {"process", child}, {"console", console}});
      } else {
        print("{} trains in the background as process {}\n", folder, child);
        remark("`lockstep attach {}` shows it, `kill {}` saves and stops it; it prints to {}\n", folder,
               child, console);
      }
      return 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  remark("{}", said_since(console, size));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace lockstep::cli
