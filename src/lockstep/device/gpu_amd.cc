#include "lockstep/device/gpu_amd.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::device {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = 65536;
constexpr const char* kMaker = "0x1002";  // AMD's number on the PCI bus

std::string text_in(const std::string& file) {
  return std::string(base::trimmed(base::try_read_file(file, kMostBytes).text));
}

std::optional<int64_t> number_in(const std::string& file) { return base::parse_number(text_in(file)); }

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename());
  std::ranges::sort(names);
  return names;
}

// "card0", "card1", ...: not "card0-HDMI-A-1", which is a plug.
std::vector<std::string> cards(const std::string& root) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : names_in(root + "/drm")) {
    const auto number = name.starts_with("card") ? base::parse_number(name.substr(4)) : std::nullopt;
    const std::string folder = root + "/drm/" + name + "/device";
    if (number && text_in(folder + "/vendor") == kMaker) found.emplace_back(*number, folder);
  }
  std::ranges::sort(found);
  std::vector<std::string> folders;
  for (auto& [number, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

// "1: 800Mhz *" in the line of the level that it runs at; the last line is the highest.
void read_clocks(const std::string& folder, GpuNow& gpu) {
  for (const std::string& line : base::split_lines(text_in(folder + "/pp_dpm_sclk"))) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto mhz = base::leading_number<int>(base::trimmed(line.substr(colon + 1)));
    if (!mhz) continue;
    gpu.clock_max_mhz = std::max(gpu.clock_max_mhz.value_or(0), *mhz);
    if (line.find('*') != std::string::npos) gpu.clock_mhz = *mhz;
  }
}

void read_sensors(const std::string& folder, GpuNow& gpu) {
  for (const std::string& name : names_in(folder + "/hwmon")) {
    const std::string sensors = folder + "/hwmon/" + name;
    auto microwatts = number_in(sensors + "/power1_average");
    if (!microwatts) microwatts = number_in(sensors + "/power1_input");  // MI300
    if (microwatts) gpu.watts = static_cast<double>(*microwatts) / 1e6;
    if (const auto cap = number_in(sensors + "/power1_cap"))
      gpu.watts_limit = static_cast<double>(*cap) / 1e6;
    for (const char* sensor : {"/temp2_input", "/temp1_input"}) {  // the hottest spot, or the edge
      const auto thousandths = number_in(sensors + sensor);
      if (thousandths && !gpu.celsius) gpu.celsius = static_cast<int>(*thousandths / 1000);
    }
  }
}

// "ue: 0\nce: 3", a file for each part of the GPU.
void read_memory_errors(const std::string& folder, GpuNow& gpu) {
  for (const std::string& name : names_in(folder + "/ras")) {
    if (!name.ends_with("_err_count")) continue;
    for (const std::string& line : base::split_lines(text_in(folder + "/ras/" + name))) {
      const auto count = line.size() > 3 ? base::parse_number(base::trimmed(line.substr(3))) : std::nullopt;
      if (count && line.starts_with("ue:")) gpu.ecc_broken = gpu.ecc_broken.value_or(0) + *count;
      if (count && line.starts_with("ce:")) gpu.ecc_corrected = gpu.ecc_corrected.value_or(0) + *count;
    }
  }
}

// The driver's number for this GPU in its list of processes: the node of its topology with the same render
// device.
std::string compute_id(const std::string& root, const std::string& folder) {
  const std::string nodes = root + "/kfd/kfd/topology/nodes/";
  for (const std::string& node : names_in(nodes)) {
    for (const std::string& line : base::split_lines(text_in(nodes + node + "/properties"))) {
      const std::string key = "drm_render_minor ";
      if (line.starts_with(key) &&
          fs::exists(folder + "/drm/renderD" + std::string(base::trimmed(line.substr(key.size())))))
        return text_in(nodes + node + "/gpu_id");
    }
  }
  return "";
}

void read_processes(const std::string& root, const std::string& folder, GpuNow& gpu) {
  const std::string id = compute_id(root, folder), processes = root + "/kfd/kfd/proc/";
  if (id.empty()) return;
  for (const std::string& name : names_in(processes)) {
    const auto pid = base::parse_number<int>(name);
    const auto bytes = number_in(processes + name + "/vram_" + id);
    if (pid && bytes) gpu.processes.push_back({*pid, *bytes});
  }
}

std::string name_of(const std::string& folder) {
  const std::string name = text_in(folder + "/product_name");
  return name.empty() ? fmt::format("AMD GPU {}", text_in(folder + "/device")) : name;
}

GpuNow read(const std::string& root, const std::string& folder) {
  GpuNow gpu;
  gpu.name = name_of(folder);
  if (const auto percent = number_in(folder + "/gpu_busy_percent"))
    gpu.utilization = static_cast<double>(*percent) / 100;
  gpu.memory_used = number_in(folder + "/mem_info_vram_used").value_or(0);
  gpu.memory_total = number_in(folder + "/mem_info_vram_total").value_or(0);
  read_clocks(folder, gpu);
  read_sensors(folder, gpu);
  gpu.throttled = amd_throttle_reasons(base::try_read_file(folder + "/gpu_metrics", kMostBytes).text);
  read_memory_errors(folder, gpu);
  read_processes(root, folder, gpu);
  return gpu;
}

}  // namespace

std::vector<std::string> amd_throttle_reasons(const std::string& gpu_metrics) {
  // struct gpu_metrics_v1_3 of the kernel: a header of four bytes (size, 1, 3) and, at byte 112, a bit for
  // each reason.
  constexpr size_t kReasonsAt = 112;
  uint64_t bits = 0;
  if (gpu_metrics.size() < kReasonsAt + sizeof(bits) || gpu_metrics[2] != 1 || gpu_metrics[3] != 3) return {};
  std::memcpy(&bits, gpu_metrics.data() + kReasonsAt, sizeof(bits));
  if (bits == ~uint64_t{0}) return {};  // the GPU does not fill it in
  struct Group {
    int first, last;
    const char* name;
  };
  constexpr Group kGroups[] = {{0, 15, "power cap"}, {16, 31, "current limit"}, {32, 55, "heat"}};
  std::vector<std::string> reasons;
  for (const Group& group : kGroups) {
    const uint64_t mask = ((uint64_t{1} << (group.last - group.first + 1)) - 1) << group.first;
    if ((bits & mask) != 0) reasons.push_back(group.name);
  }
  return reasons;
}

std::vector<GpuNow> amd_gpus_now(int first, const std::string& root) {
  std::vector<GpuNow> all;
  for (const std::string& folder : cards(root)) {
    GpuNow gpu = read(root, folder);
    gpu.index = first + static_cast<int>(all.size());
    all.push_back(std::move(gpu));
  }
  return all;
}

}  // namespace lockstep::device
