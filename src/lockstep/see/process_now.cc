#include "lockstep/see/process_now.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "lockstep/base/number.h"

namespace lockstep::see {

std::optional<ProcessNow> process_now(int pid) {
  std::string stat;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), stat);
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 2));
  std::string state, skipped;
  ProcessNow now;
  fields >> state >> now.parent;
  if (state == "Z" || state == "X" || state.empty()) return std::nullopt;
  now.state = state[0];
  for (int i = 0; i < 9; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  for (int i = 0; i < 8; ++i) fields >> skipped;
  int64_t pages = 0;
  fields >> pages;
  now.cpu_seconds = (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  now.memory = pages * ::sysconf(_SC_PAGESIZE);
  return now;
}

ProcessorTime processor_time(int pid) {
  ProcessorTime all;
  std::error_code error;
  for (std::filesystem::directory_iterator at(fmt::format("/proc/{}/task", pid), error), end;
       !error && at != end; at.increment(error)) {
    double used = 0, waited = 0;  // nanoseconds
    if (std::ifstream(at->path() / "schedstat") >> used >> waited)
      all.used += used / 1e9, all.waited += waited / 1e9;
  }
  return all;
}

double waiting_for_processors(const std::vector<int>& pids, std::chrono::milliseconds measured) {
  if (pids.empty()) return 0;
  const auto now = [&] {
    std::vector<ProcessorTime> times;
    for (const int pid : pids) times.push_back(processor_time(pid));
    return times;
  };
  const std::vector<ProcessorTime> before = now();
  std::this_thread::sleep_for(measured);
  const std::vector<ProcessorTime> after = now();
  double used = 0, waited = 0;
  for (size_t k = 0; k < pids.size(); ++k) {
    used += std::max(0.0, after[k].used - before[k].used);  // threads end, and take their times with them
    waited += std::max(0.0, after[k].waited - before[k].waited);
  }
  return used + waited > 0 ? waited / (used + waited) : 0;
}

std::vector<int> family_of(int pid) {
  std::multimap<int, int> children;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    const auto number = base::parse_number<int>(at->path().filename().string());
    if (!number) continue;
    if (const auto now = process_now(*number)) children.emplace(now->parent, *number);
  }
  std::vector<int> family{pid};
  for (size_t i = 0; i < family.size(); ++i) {
    const auto [first, last] = children.equal_range(family[i]);
    for (auto at = first; at != last; ++at) family.push_back(at->second);
  }
  return family;
}

}  // namespace lockstep::see
