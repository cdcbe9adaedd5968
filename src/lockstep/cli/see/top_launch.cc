#include "lockstep/cli/see/top_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/schedulers/rendezvous_file.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

// Of all GPUs, by the rank's processes.
int64_t gpu_bytes(const see::ForeignRankNow& rank, const std::vector<device::GpuNow>& gpus) {
  int64_t bytes = 0;
  for (const device::GpuNow& gpu : gpus) {
    for (const device::GpuNow::Process& process : gpu.processes) {
      if (std::find(rank.family.begin(), rank.family.end(), process.pid) != rank.family.end())
        bytes += process.memory;
    }
  }
  return bytes;
}

std::string size_text(int64_t bytes) {
  return bytes > 0 ? base::human_bytes(static_cast<double>(bytes)) : "";
}

}  // namespace

std::vector<watch::LaunchStatus> launches_here(int launcher) {
  std::vector<watch::LaunchStatus> found;
  try {
    found = watch::launches_in(launch::runtime_folder(launch::process_variable));
  } catch (const base::Error&) {  // no folder of ours: nothing was launched from here
  }
  std::erase_if(found, [&](const auto& one) { return launcher > 0 && one.pid != launcher; });
  return found;
}

std::string launch_view(const LaunchLook& look, const std::vector<device::GpuNow>& gpus,
                        const terminal::Terminal& screen) {
  const watch::LaunchStatus& launch = look.launch;
  std::string head = fmt::format("{}  {} rank{} here", base::cut_to_width(launch.command, 60),
                                 look.ranks.size(), look.ranks.size() == 1 ? "" : "s");
  if (launch.nodes > 1) head += fmt::format(", node {} of {}", launch.node, launch.nodes);
  if (launch.restarts > 0)
    head += fmt::format(", restarted {} time{}", launch.restarts, launch.restarts == 1 ? "" : "s");
  head = base::hanging(fmt::format("{}  (launcher {}, in {})", head, launch.pid, launch.folder), screen.width,
                       2);
  const bool on_gpus =
      std::any_of(look.ranks.begin(), look.ranks.end(),
                  [&](const see::ForeignRankNow& rank) { return gpu_bytes(rank, gpus) > 0; });
  std::vector<std::string> heading{"rank", "process", "cores", "memory"};
  if (on_gpus) heading.push_back("on GPUs");
  heading.insert(heading.end(), {"doing", "printed last"});
  terminal::Table table(heading);
  for (size_t column = 0; column + 2 < heading.size(); ++column) table.align_right(column);
  constexpr size_t kFixed = 70, kLeast = 12;
  const size_t room = screen.width > kFixed + kLeast ? screen.width - kFixed : kLeast;
  for (const see::ForeignRankNow& rank : look.ranks) {
    std::vector<std::string> row{std::to_string(rank.rank), std::to_string(rank.pid),
                                 rank.cpu ? fmt::format("{:.2f}", *rank.cpu) : "", size_text(rank.memory)};
    if (on_gpus) row.push_back(size_text(gpu_bytes(rank, gpus)));
    row.push_back(rank.doing);
    row.push_back(base::cut_to_width(rank.last_line, room));
    table.add(std::move(row));
  }
  return head + "\n\n" + table.to_text(screen);
}

nlohmann::json launch_json(const LaunchLook& look, const std::vector<device::GpuNow>& gpus) {
  nlohmann::json ranks = nlohmann::json::array();
  for (const see::ForeignRankNow& rank : look.ranks) {
    nlohmann::json one{{"rank", rank.rank},           {"pid", rank.pid},
                       {"alive", rank.alive},         {"doing", rank.doing},
                       {"memory_bytes", rank.memory}, {"gpu_memory_bytes", gpu_bytes(rank, gpus)},
                       {"last_line", rank.last_line}};
    if (rank.cpu) one["cores"] = *rank.cpu;
    ranks.push_back(std::move(one));
  }
  const watch::LaunchStatus& launch = look.launch;
  return {{"launcher", launch.pid}, {"command", launch.command}, {"folder", launch.folder},
          {"node", launch.node},    {"nodes", launch.nodes},     {"restarts", launch.restarts},
          {"ranks", ranks}};
}

}  // namespace lockstep::cli
