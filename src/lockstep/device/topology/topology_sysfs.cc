// Processors, network cards and PCI paths, from the files in which the Linux kernel tells them.
#include <algorithm>
#include <filesystem>
#include <set>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/device/topology/topology_read.h"

namespace lockstep::device {
namespace {

namespace fs = std::filesystem;

// Empty when it cannot be read: an absent fact, not an error.
std::string text_of(const std::string& path) {
  return std::string(base::trimmed(base::try_read_file(path, 1 << 20).text));
}

double number_in(const std::string& path, double otherwise) {
  return base::leading_number<double>(text_of(path)).value_or(otherwise);
}

// In the order people number them: mlx5_2 before mlx5_10.
bool comes_before(const std::string& a, const std::string& b) {
  const auto cut = [](const std::string& name) { return name.find_last_not_of("0123456789") + 1; };
  const size_t end_a = cut(a), end_b = cut(b);
  if (a.compare(0, end_a, b, 0, end_b) != 0) return a < b;
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (auto at = fs::directory_iterator(folder, ignored); at != fs::directory_iterator();
       at.increment(ignored)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end(), comes_before);
  return names;
}

// The numbers N of entries `prefix`N.
std::vector<int> numbered(const std::string& folder, std::string_view prefix) {
  std::vector<int> numbers;
  for (const std::string& name : entries_of(folder)) {
    if (!name.starts_with(prefix)) continue;
    const int number = base::parse_number<int>(std::string_view(name).substr(prefix.size())).value_or(-1);
    if (number >= 0) numbers.push_back(number);
  }
  return numbers;
}

class Sysfs : public CpuSource {
 public:
  explicit Sysfs(std::string root) : root_(std::move(root)) {}

  std::string name() const override { return "sysfs"; }

  CpuParts parts() const override {
    CpuParts parts;
    const Cpus online = parse_cpu_list(text_of(root_ + "/sys/devices/system/cpu/online"));
    parts.cpus = online;
    parts.nodes = nodes();
    std::set<Cpus> sockets, complexes, cores;
    for (const int cpu : online) {
      const std::string folder = root_ + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
      add(sockets, folder + "/topology/package_cpus_list", folder + "/topology/core_siblings_list");
      add(cores, folder + "/topology/core_cpus_list", folder + "/topology/thread_siblings_list");
      add(complexes, last_cache(folder) + "/shared_cpu_list", "");
    }
    parts.sockets.assign(sockets.begin(), sockets.end());
    parts.core_complexes.assign(complexes.begin(), complexes.end());
    parts.cores.assign(cores.begin(), cores.end());
    // Virtual machines and ARM may leave all of it out.
    if (parts.nodes.empty()) parts.nodes.push_back({0, online, 0});
    if (parts.sockets.empty()) parts.sockets.push_back(online);
    if (parts.core_complexes.empty()) parts.core_complexes = parts.sockets;
    if (parts.cores.empty()) {
      for (const int cpu : online) parts.cores.push_back({cpu});
    }
    return parts;
  }

  Locality near(const std::string& pci_address) const override {
    const std::string folder = root_ + "/sys/bus/pci/devices/" + pci_address;
    Locality near;
    near.node = static_cast<int>(number_in(folder + "/numa_node", -1));
    near.cpus = parse_cpu_list(text_of(folder + "/local_cpulist"));
    if (near.node < 0) near.node = node_with(nodes(), near.cpus);
    return near;
  }

 private:
  static void add(std::set<Cpus>& groups, const std::string& file, const std::string& older_name) {
    Cpus cpus = parse_cpu_list(text_of(file));
    if (cpus.empty() && !older_name.empty()) cpus = parse_cpu_list(text_of(older_name));
    if (!cpus.empty()) groups.insert(std::move(cpus));
  }

  static std::string last_cache(const std::string& cpu_folder) {
    std::string last;
    double deepest = 0;
    for (const int index : numbered(cpu_folder + "/cache", "index")) {
      const std::string cache = cpu_folder + "/cache/index" + std::to_string(index);
      const double level = number_in(cache + "/level", 0);
      if (level > deepest) deepest = level, last = cache;
    }
    return last;
  }

  std::vector<NumaNode> nodes() const {
    std::vector<NumaNode> nodes;
    const std::string folder = root_ + "/sys/devices/system/node";
    for (const int id : numbered(folder, "node")) {
      const std::string node = folder + "/node" + std::to_string(id);
      nodes.push_back({id, parse_cpu_list(text_of(node + "/cpulist")), memory_of(node)});
    }
    return nodes;
  }

  static int64_t memory_of(const std::string& node) {
    const std::string text = text_of(node + "/meminfo");  // "Node 0 MemTotal:  1056 kB"
    const size_t at = text.find("MemTotal:");
    if (at == std::string::npos) return 0;
    const std::string_view rest = base::trimmed(std::string_view(text).substr(at + 9));
    return base::leading_number(rest).value_or(0) * 1024;
  }

  std::string root_;
};

PciPath path_of_link(const std::string& link) {
  std::error_code error;
  const fs::path real = fs::canonical(link, error);
  return error ? PciPath{} : parse_pci_path(real.string());
}

double interface_gbits(const std::string& folder) {
  const double megabits = number_in(folder + "/speed", 0);  // -1 when the card does not say
  return megabits > 0 ? megabits / 1000 : 0;
}

bool is_up(const std::string& interface_folder) {
  const std::string state = text_of(interface_folder + "/operstate");
  return state == "up" || (state == "unknown" && number_in(interface_folder + "/carrier", 0) == 1);
}

Locality near_of(const PciPath& path, const CpuSource& cpu) {
  return path.empty() ? Locality{} : cpu.near(path.back());
}

Nic read_verbs_card(const std::string& root, const std::string& name, const CpuSource& cpu) {
  const std::string folder = root + "/sys/class/infiniband/" + name;
  Nic nic{.name = name, .kind = Nic::Kind::infiniband};
  for (const int port : numbered(folder + "/ports", "")) {
    const std::string at = folder + "/ports/" + std::to_string(port);
    if (text_of(at + "/link_layer") == "Ethernet") nic.kind = Nic::Kind::roce;
    if (!text_of(at + "/state").starts_with("4:")) continue;  // "4: ACTIVE"
    nic.up = true;
    nic.gbits = std::max(nic.gbits, number_in(at + "/rate", 0));  // "200 Gb/sec (4X HDR)"
  }
  nic.path = path_of_link(folder + "/device");
  nic.near = near_of(nic.path, cpu);
  nic.interfaces = entries_of(folder + "/device/net");
  return nic;
}

}  // namespace

std::unique_ptr<CpuSource> open_sysfs(const std::string& root) { return std::make_unique<Sysfs>(root); }

PciPath read_pci_path(const std::string& root, const std::string& address) {
  return path_of_link(root + "/sys/bus/pci/devices/" + address);
}

std::vector<Nic> read_nics(const std::string& root, const CpuSource& cpu) {
  std::vector<Nic> nics;
  std::set<std::string> taken;  // interfaces of cards that have verbs
  for (const std::string& name : entries_of(root + "/sys/class/infiniband")) {
    nics.push_back(read_verbs_card(root, name, cpu));
    taken.insert(nics.back().interfaces.begin(), nics.back().interfaces.end());
  }
  for (const std::string& name : entries_of(root + "/sys/class/net")) {
    const std::string folder = root + "/sys/class/net/" + name;
    Nic nic{.name = name, .interfaces = {name}};
    nic.path = path_of_link(folder + "/device");
    if (taken.count(name) > 0 || nic.path.empty()) continue;
    nic.near = near_of(nic.path, cpu);
    nic.up = is_up(folder);
    nic.gbits = interface_gbits(folder);
    nics.push_back(std::move(nic));
  }
  return nics;
}

std::vector<NetInterface> read_interfaces(const std::string& root) {
  std::set<std::string> routed;
  for (const std::string& line : base::split_lines(text_of(root + "/proc/net/route"))) {
    routed.insert(line.substr(0, line.find_first_of(" \t")));
  }
  std::vector<NetInterface> interfaces;
  std::error_code ignored;
  for (const std::string& name : entries_of(root + "/sys/class/net")) {
    const std::string folder = root + "/sys/class/net/" + name;
    const bool physical = fs::exists(folder + "/device", ignored);
    interfaces.push_back({name, physical, is_up(folder), routed.count(name) > 0, interface_gbits(folder)});
  }
  return interfaces;
}

}  // namespace lockstep::device
