#include "lockstep/device/topology/topology_read.h"

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/device/cuda_facts.h"
#include "lockstep/device/topology/affinity.h"

extern char** environ;

namespace lockstep::device {
namespace {

constexpr int kMostNvLinks = 18;  // of one GPU; NVML_NVLINK_MAX_LINKS

struct GpuLinks {
  std::map<std::string, int> to;  // PCI address of the other end, links
  int to_switch = 0;
};

// A link whose other end is no GPU of this machine ends in an NVSwitch, which virtual machines do not show.
GpuLinks count_links(const GpuSource& source, int gpu, const std::vector<Gpu>& gpus) {
  using Remote = GpuSource::NvLink::Remote;
  GpuLinks links;
  for (int i = 0; i < kMostNvLinks; ++i) {
    const std::optional<GpuSource::NvLink> link = source.nvlink(gpu, i);
    if (!link || !link->active || link->remote == Remote::npu) continue;
    const bool here =
        std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& g) { return g.address == link->address; });
    if (here) {
      ++links.to[link->address];
    } else if (link->remote != Remote::gpu) {
      ++links.to_switch;
    }
  }
  return links;
}

Link link_between(const Topology& machine, const GpuSource& source, const std::vector<GpuLinks>& nvlinks,
                  int a, int b) {
  const auto at = [](auto& list, int i) -> auto& { return list[static_cast<size_t>(i)]; };
  const GpuLinks &from = at(nvlinks, a), &to = at(nvlinks, b);
  const auto direct = from.to.find(at(machine.gpus, b).address);
  const int count = (direct == from.to.end() ? 0 : direct->second) + std::min(from.to_switch, to.to_switch);
  if (count > 0) return {LinkKind::nvlink, count};
  if (const auto kind = source.common_ancestor(a, b)) return {*kind};
  const Gpu &gpu_a = at(machine.gpus, a), &gpu_b = at(machine.gpus, b);
  return pci_link(gpu_a.path, gpu_a.near.node, gpu_b.path, gpu_b.near.node);
}

void add_gpus(const TopologySources& sources, Topology& machine) {
  for (int i = 0; i < sources.gpu->count(); ++i) {
    std::optional<Gpu> gpu = sources.gpu->gpu(i);
    if (!gpu) return;  // one that fell off the bus: NVML's numbers end here for us
    gpu->path = read_pci_path(sources.root, gpu->address);
    gpu->near = sources.cpu.near(gpu->address);
    machine.gpus.push_back(std::move(*gpu));
  }
}

void add_links(const GpuSource& source, Topology& machine) {
  const int count = static_cast<int>(machine.gpus.size());
  std::vector<GpuLinks> nvlinks;
  for (int i = 0; i < count; ++i) nvlinks.push_back(count_links(source, i, machine.gpus));
  for (int a = 0; a < count; ++a) {
    std::vector<Link> links;
    std::vector<bool> access;
    for (int b = 0; b < count; ++b) {
      links.push_back(a == b ? Link{LinkKind::self} : link_between(machine, source, nvlinks, a, b));
      access.push_back(a == b || source.peer_access(a, b));
    }
    machine.gpu_links.push_back(std::move(links));
    machine.peer_access.push_back(std::move(access));
  }
}

void add_visible(const TopologySources& sources, Topology& machine) {
  std::vector<GpuFacts> all;
  for (const Gpu& gpu : machine.gpus) all.push_back({gpu.name, gpu.uuid, gpu.major, gpu.minor});
  std::optional<std::string> choice;
  if (const auto it = sources.variables.find("CUDA_VISIBLE_DEVICES"); it != sources.variables.end())
    choice = it->second;
  for (const GpuFacts& seen : visible_gpus(all, choice)) {
    const auto same = [&](const Gpu& gpu) { return gpu.uuid == seen.uuid; };
    const auto at = std::find_if(machine.gpus.begin(), machine.gpus.end(), same);
    machine.visible.push_back(static_cast<int>(at - machine.gpus.begin()));
  }
}

void add_cpu_names(const std::string& root, Topology& machine) {
  for (const std::string& line :
       base::split_lines(base::try_read_file(root + "/proc/cpuinfo", 1 << 24).text)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view name = base::trimmed(std::string_view(line).substr(0, colon));
    const std::string_view value = base::trimmed(std::string_view(line).substr(colon + 1));
    if (name == "model name" && machine.cpu_model.empty()) machine.cpu_model = value;
    if (name == "vendor_id" && machine.cpu_vendor.empty()) machine.cpu_vendor = value;
  }
}

}  // namespace

Topology build_topology(const TopologySources& sources) {
  Topology machine;
  machine.cpu_source = sources.cpu.name();
  machine.cpu = sources.cpu.parts();
  add_cpu_names(sources.root, machine);
  if (sources.gpu != nullptr) {
    add_gpus(sources, machine);
    add_links(*sources.gpu, machine);
    add_visible(sources, machine);
  }
  machine.nics = read_nics(sources.root, sources.cpu);
  machine.interfaces = read_interfaces(sources.root);
  for (const auto& [name, value] : sources.variables) {
    if (name.starts_with("NCCL_")) machine.variables[name] = value;
  }
  return machine;
}

Topology read_topology() {
  std::unique_ptr<CpuSource> cpu = open_hwloc();
  if (!cpu) cpu = open_sysfs("");
  const std::unique_ptr<GpuSource> gpu = open_nvml();
  TopologySources sources{.cpu = *cpu, .gpu = gpu.get()};
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.starts_with("NCCL_") || name == "CUDA_VISIBLE_DEVICES")
      sources.variables[std::string(name)] = text.substr(equals + 1);
  }
  Topology machine = build_topology(sources);
  machine.cpu.cpus = allowed_of(machine.cpu.cpus);
  return machine;
}

}  // namespace lockstep::device
