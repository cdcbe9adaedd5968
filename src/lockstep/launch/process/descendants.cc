#include "lockstep/launch/process/descendants.h"
#include "lockstep/base/number.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>

namespace lockstep::launch {

namespace {

// Small and without exceptions: a process that ends while it is read is simply not there.
std::string read_stat(const char* pid) {
  const std::string path = std::string("/proc/") + pid + "/stat";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  char text[1024];
  const ssize_t got = ::read(file, text, sizeof text);
  ::close(file);
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : "";
}

// A /proc that was mounted for another PID namespace gives processes other numbers: signals would go astray.
bool proc_is_ours() {
  char name[32];
  const ssize_t got = ::readlink("/proc/self", name, sizeof name);
  return got > 0 && std::string(name, static_cast<size_t>(got)) == std::to_string(::getpid());
}

}  // namespace

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

ProcessLine parse_process_line(std::string_view stat) {
  ProcessLine line;
  const size_t close = stat.rfind(')');
  if (close == std::string_view::npos || close + 4 > stat.size()) return {};
  const std::optional<pid_t> pid = base::leading_number<pid_t>(stat);
  const std::optional<pid_t> parent = base::leading_number<pid_t>(stat.substr(close + 4));
  if (!pid || !parent) return {};
  line.pid = *pid;
  line.state = stat[close + 2];
  line.parent = *parent;
  return line;
}

std::vector<pid_t> descendants_of(pid_t root) {
  if (!proc_is_ours()) return {};
  std::multimap<pid_t, ProcessLine> by_parent;
  DIR* folder = ::opendir("/proc");
  if (!folder) return {};
  while (const dirent* entry = ::readdir(folder)) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    const ProcessLine line = parse_process_line(read_stat(entry->d_name));
    if (line.pid > 0) by_parent.emplace(line.parent, line);
  }
  ::closedir(folder);
  std::vector<pid_t> found, open = {root};
  while (!open.empty()) {
    const auto [begin, end] = by_parent.equal_range(open.back());
    open.pop_back();
    for (auto one = begin; one != end; ++one) {
      open.push_back(one->second.pid);
      if (one->second.state != 'Z' && one->second.state != 'X') found.push_back(one->second.pid);
    }
  }
  return found;
}

int signal_descendants(int signal, const std::vector<pid_t>& spared) {
  std::vector<pid_t> all = descendants_of(::getpid());
  std::erase_if(all, [&](pid_t one) { return std::count(spared.begin(), spared.end(), one) > 0; });
  for (const pid_t one : all) ::kill(one, signal);
  return static_cast<int>(all.size());
}

}  // namespace lockstep::launch
