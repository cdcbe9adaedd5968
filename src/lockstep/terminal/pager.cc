#include "lockstep/terminal/pager.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio_ext.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/terminal/terminal.h"

namespace lockstep::terminal {

namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_in_path(const std::string& program) {
  std::string_view folders = variable("PATH");
  while (!folders.empty()) {
    const std::string_view folder = folders.substr(0, folders.find(':'));
    folders.remove_prefix(folder.size() == folders.size() ? folders.size() : folder.size() + 1);
    if (::access((std::string(folder) + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// Empty: none is wanted, or none is there.
std::string command() {
  if (const char* pager = std::getenv("PAGER")) return std::string_view(pager) == "cat" ? "" : pager;
  return is_in_path("less") ? "less" : "";
}

}  // namespace

Pager::Pager() {
  const Terminal terminal = terminal_of(STDOUT_FILENO);
  const std::string words = terminal.is_tty && ::isatty(STDIN_FILENO) == 1 ? command() : "";
  int ends[2];
  if (words.empty() || variable("TERM") == "dumb" || ::pipe2(ends, O_CLOEXEC) != 0) return;
  std::fflush(stdout);
  child_ = ::fork();
  if (child_ == 0) {
    ::dup2(ends[0], STDIN_FILENO);
    ::setenv("LESS", "FRX", 0);  // at once if it fits, with colours, and the text stays on the screen
    ::setenv("LV", "-c", 0);
    ::execl("/bin/sh", "sh", "-c", words.c_str(), nullptr);
    ::_exit(127);
  }
  if (child_ > 0) {
    screen_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::dup2(ends[1], STDOUT_FILENO);
    ::signal(SIGINT, SIG_IGN);  // it is the pager's
    // What is written is for this terminal, although it goes through a pipe.
    ::setenv("COLUMNS", std::to_string(terminal.width).c_str(), 1);
    if (terminal.colours) ::setenv("CLICOLOR_FORCE", "1", 1);
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

Pager::~Pager() {
  if (child_ <= 0) return;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {  // now or before: the reader has seen enough
    __fpurge(stdout);
    std::clearerr(stdout);
  }
  ::dup2(screen_, STDOUT_FILENO);
  ::close(screen_);
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace lockstep::terminal
