#include "lockstep/launch/schedulers/idle_allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lockstep/base/text.h"
#include "lockstep/launch/schedulers/environment_readers.h"

namespace lockstep::launch {
namespace {

struct Allocation {
  std::string scheduler;
  int nodes = 1, slots = 1;
  std::string how;  // to start a rank on each
};

// A host a line, PBS's once for each slot; Grid Engine's with the number of slots behind it.
Allocation from_hosts(const std::string& text, Allocation found) {
  std::set<std::string> hosts;
  found.slots = 0;
  for (const std::string& line : base::split_lines(text)) {
    const std::vector<std::string> words = split(base::trimmed(line), ' ');
    if (words[0].empty()) continue;
    hosts.insert(words[0]);
    found.slots += words.size() > 1 ? parse_count(words[1]).value_or(1) : 1;
  }
  found.nodes = static_cast<int>(hosts.size());
  return found;
}

// What the script of a batch job was given, by the first scheduler that says so.
Allocation allocation_of(const Environment& environment, const FileReader& read) {
  const Variables v("", environment);
  const auto count = [&](const char* name) { return parse_count(base::trimmed(v.text(name))).value_or(1); };
  if (v.has("PBS_JOBID") && v.has("PBS_NODEFILE")) {
    Allocation pbs{.scheduler = "PBS", .how = "`pbsdsh -- lockstep ...` or `mpirun lockstep ...`"};
    return from_hosts(read(v.text("PBS_NODEFILE")).value_or(""), pbs);
  }
  if (v.has("SLURM_JOB_ID")) {
    return {"Slurm", count("SLURM_JOB_NUM_NODES"),
            std::max(count("SLURM_NTASKS"), count("SLURM_JOB_NUM_NODES")), "`srun lockstep ...`"};
  }
  if (v.has("JOB_ID") && v.has("PE_HOSTFILE")) {
    return from_hosts(read(v.text("PE_HOSTFILE")).value_or(""),
                      {.scheduler = "Grid Engine", .how = "`mpirun lockstep ...`"});
  }
  if (v.has("LSB_JOBID") && v.has("LSB_HOSTS")) {
    std::string lines = v.text("LSB_HOSTS");
    std::replace(lines.begin(), lines.end(), ' ', '\n');
    return from_hosts(lines, {.scheduler = "LSF", .how = "`mpirun lockstep ...`"});
  }
  return {};
}

}  // namespace

std::string idle_allocation(const Environment& environment, int ranks, const FileReader& read) {
  const Allocation found = allocation_of(environment, read);
  const bool all_here = found.nodes <= 1 && ranks >= 2;  // --nproc on the only node: as asked for
  if (found.slots <= 1 || all_here) return "";
  const std::string given = found.nodes > 1 ? fmt::format("{} nodes", found.nodes)
                                            : fmt::format("{} slots on this node", found.slots);
  return fmt::format(
      "lockstep: warning: {} allocated {} to this job, but lockstep was started only here, with {} rank{}; "
      "start it on all of them with {}{}\n",
      found.scheduler, given, ranks, ranks == 1 ? "" : "s", found.how,
      found.nodes > 1 ? "" : fmt::format(", or with --nproc {}", found.slots));
}

}  // namespace lockstep::launch
