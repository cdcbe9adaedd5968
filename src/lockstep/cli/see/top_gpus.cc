#include "lockstep/cli/see/top_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

using device::GpuNow;
using nlohmann::json;

template <class Value>
json or_null(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}

template <class Value>
std::string shown(const char* form, const std::optional<Value>& value) {
  return value ? fmt::format(fmt::runtime(form), *value) : "";
}

std::string errors_of(const GpuNow& gpu) {
  std::string text;
  if (gpu.ecc_broken.value_or(0) > 0) text = fmt::format("{} ECC", *gpu.ecc_broken);
  for (const int64_t xid : gpu.xids) text += fmt::format("{}XID {}", text.empty() ? "" : ", ", xid);
  return text;
}

}  // namespace

std::string gpu_table(const std::vector<GpuNow>& gpus, const terminal::Terminal& screen) {
  constexpr size_t kRoomForAll = 90;
  const bool all = screen.width >= kRoomForAll;
  std::vector<std::string> heading{"GPU", "busy", "memory", "power", "clock", "heat"};
  if (all) heading.insert(heading.end(), {"NVLink out", "in"});
  heading.insert(heading.end(), {"held back by", "errors"});
  terminal::Table table(heading);
  for (size_t column = 0; column + 2 < heading.size(); ++column) table.align_right(column);
  for (const GpuNow& gpu : gpus) {
    const auto rate = [](const std::optional<double>& bytes) {
      return bytes ? base::human_bytes(*bytes) + "/s" : std::string();
    };
    std::vector<std::string> row{
        std::to_string(gpu.index),
        gpu.utilization ? fmt::format("{:.0f} %", 100 * *gpu.utilization) : "",
        gpu.memory_total > 0
            ? fmt::format("{:.1f}/{:.0f} GiB", static_cast<double>(gpu.memory_used) / (1 << 30),
                          static_cast<double>(gpu.memory_total) / (1 << 30))
            : "",
        gpu.watts ? fmt::format("{:.0f}{} W", *gpu.watts, shown("/{:.0f}", gpu.watts_limit)) : "",
        gpu.clock_mhz ? fmt::format("{}{} MHz", *gpu.clock_mhz, shown("/{}", gpu.clock_max_mhz)) : "",
        shown("{} C", gpu.celsius)};
    if (all) row.push_back(rate(gpu.nvlink_sent)), row.push_back(rate(gpu.nvlink_received));
    row.push_back(base::join(gpu.throttled, ", "));
    row.push_back(errors_of(gpu));
    table.add(std::move(row));
  }
  return table.to_text(screen);
}

std::vector<std::string> gpu_warnings(const std::vector<GpuNow>& gpus, bool trains) {
  std::vector<std::string> all;
  for (const GpuNow& gpu : gpus) {
    for (std::string& one : device::warnings_of(gpu, trains)) all.push_back(std::move(one));
  }
  return all;
}

json gpus_json(const std::vector<GpuNow>& gpus, bool trains) {
  json all = json::array();
  for (const GpuNow& gpu : gpus) {
    all.push_back({{"index", gpu.index},
                   {"name", gpu.name},
                   {"utilization", or_null(gpu.utilization)},
                   {"memory_used", gpu.memory_used},
                   {"memory_total", gpu.memory_total},
                   {"watts", or_null(gpu.watts)},
                   {"watts_limit", or_null(gpu.watts_limit)},
                   {"clock_mhz", or_null(gpu.clock_mhz)},
                   {"clock_max_mhz", or_null(gpu.clock_max_mhz)},
                   {"celsius", or_null(gpu.celsius)},
                   {"throttled", gpu.throttled},
                   {"ecc_corrected", or_null(gpu.ecc_corrected)},
                   {"ecc_uncorrected", or_null(gpu.ecc_broken)},
                   {"xids", gpu.xids},
                   {"nvlink_sent_per_s", or_null(gpu.nvlink_sent)},
                   {"nvlink_received_per_s", or_null(gpu.nvlink_received)},
                   {"warnings", device::warnings_of(gpu, trains)}});
  }
  return all;
}

std::string network_line(const std::vector<device::LinkNow>& links) {
  constexpr size_t kMost = 4;  // the busiest
  std::string line;
  for (size_t k = 0; k < std::min(links.size(), kMost); ++k) {
    const device::LinkNow& link = links[k];
    line += fmt::format("{}{} {}/s out, {}/s in", k == 0 ? "network  " : "; ", link.name,
                        base::human_bytes(link.sent), base::human_bytes(link.received));
    if (link.capacity) line += fmt::format(" of {}/s", base::human_bytes(*link.capacity));
  }
  return line;
}

json network_json(const std::vector<device::LinkNow>& links) {
  json all = json::array();
  for (const device::LinkNow& link : links) {
    all.push_back({{"name", link.name},
                   {"sent_per_s", link.sent},
                   {"received_per_s", link.received},
                   {"capacity_per_s", or_null(link.capacity)}});
  }
  return all;
}

}  // namespace lockstep::cli
