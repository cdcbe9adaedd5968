#include "lockstep/see/foreign_now.h"

#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/see/process_now.h"

namespace lockstep::see {

namespace {

std::string waiting_place(int pid) {
  const std::string text(base::trimmed(base::try_read_file(fmt::format("/proc/{}/wchan", pid), 256).text));
  return text.empty() || text == "0" ? "waits" : "waits in " + text;
}

std::string doing(const ProcessNow& now, int pid, const std::optional<double>& cpu) {
  constexpr double kBusy = 0.1;  // of a processor
  if (now.state == 'T' || now.state == 't') return "stopped (SIGSTOP or a debugger)";
  if (cpu ? *cpu >= kBusy : now.state == 'R') return "computes";
  return now.state == 'D' ? "waits for a disk or file server" : waiting_place(pid);
}

}  // namespace

std::vector<ForeignRankNow> ForeignNow::ranks(const watch::LaunchStatus& launch) {
  std::vector<ForeignRankNow> all;
  for (const watch::LaunchStatus::Rank& one : launch.ranks) {
    ForeignRankNow rank{.rank = one.rank, .pid = one.pid, .last_line = one.last_line};
    const std::optional<ProcessNow> main = one.exit_code ? std::nullopt : process_now(one.pid);
    rank.alive = main.has_value();
    if (!main) {
      rank.doing = "ended" + (one.ending.empty() ? "" : ": " + one.ending);
      all.push_back(std::move(rank));
      continue;
    }
    rank.family = family_of(one.pid);
    double cpu_seconds = 0;
    for (const int pid : rank.family) {
      if (const auto now = process_now(pid)) cpu_seconds += now->cpu_seconds, rank.memory += now->memory;
    }
    Seen& seen = seen_[one.pid];
    const int64_t at = base::monotonic_ns();
    if (seen.at_ns != 0 && at > seen.at_ns)
      rank.cpu =
          std::max(0.0, (cpu_seconds - seen.cpu_seconds) / (static_cast<double>(at - seen.at_ns) / 1e9));
    seen = {.cpu_seconds = cpu_seconds, .at_ns = at};
    rank.doing = doing(*main, one.pid, rank.cpu);
    all.push_back(std::move(rank));
  }
  return all;
}

}  // namespace lockstep::see
