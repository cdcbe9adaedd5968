// Recorded machines for tests: the files of sysfs that matter, and what NVML answers.
//
//     RecordedMachine machine(kDgxA100);
//     machine.topology().link(0, 1)
#pragma once

#include <filesystem>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/device/topology/topology_read.h"

namespace lockstep::device::testing {

struct RecordedGpu {
  std::string path;  // below /sys/devices, from the host bridge on
  int node = -1;
  // NVLinks: how many end in a switch, and how many in each GPU of this machine.
  int to_switch = 0;
  std::map<int, int> to_gpu = {};
};

struct RecordedNic {
  std::string name, path;
  int node = -1;
  std::string rate = "", link_layer = "";  // of a card with verbs: "200 Gb/sec (4X HDR)", "InfiniBand"
  bool up = true;
  int megabits = -1;  // of an interface
};

struct RecordedVirtual {  // an interface without a card
  std::string name;
  bool up = true;
};

struct Recording {
  std::string vendor, model;
  std::vector<std::string> nodes;  // the processors of each, "0-15,128-143"
  std::vector<std::string> sockets, complexes;
  int threads_per_core = 1;
  std::string gpu_name = "";
  int major = 0, minor = 0, generation = 0, width = 0;
  std::vector<RecordedGpu> gpus = {};
  std::vector<RecordedNic> nics = {};
  std::vector<RecordedVirtual> virtuals = {};
  bool peer_access = true;
  bool tells_ancestors = true;  // NVML's common ancestor; without it the PCI paths decide
  std::map<std::string, std::string> variables = {};
};

class RecordedGpus : public GpuSource {
 public:
  explicit RecordedGpus(const Recording& recording) : recording_(recording) {}

  int count() const override { return static_cast<int>(recording_.gpus.size()); }
  std::optional<Gpu> gpu(int index) const override {
    Gpu gpu{.name = recording_.gpu_name, .uuid = "GPU-" + std::to_string(index), .address = address(index)};
    gpu.major = recording_.major;
    gpu.minor = recording_.minor;
    gpu.pcie_generation = recording_.generation;
    gpu.pcie_width = recording_.width;
    return gpu;
  }
  std::optional<NvLink> nvlink(int index, int link) const override {
    const RecordedGpu& gpu = at(index);
    if (link < gpu.to_switch) return NvLink{true, NvLink::Remote::nvswitch, "0000:c4:00.0"};
    link -= gpu.to_switch;
    for (const auto& [other, count] : gpu.to_gpu) {
      if (link < count) return NvLink{true, NvLink::Remote::gpu, address(other)};
      link -= count;
    }
    return std::nullopt;
  }
  std::optional<LinkKind> common_ancestor(int a, int b) const override {
    if (!recording_.tells_ancestors) return std::nullopt;
    return pci_link(parse_pci_path(at(a).path), at(a).node, parse_pci_path(at(b).path), at(b).node).kind;
  }
  bool peer_access(int, int) const override { return recording_.peer_access; }

 private:
  const RecordedGpu& at(int index) const { return recording_.gpus[static_cast<size_t>(index)]; }
  std::string address(int index) const { return at(index).path.substr(at(index).path.rfind('/') + 1); }

  const Recording& recording_;
};

class RecordedMachine {
 public:
  explicit RecordedMachine(const Recording& recording) : recording_(recording) {
    folder_.write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: " + recording.vendor +
                                      "\nmodel name\t: " + recording.model + "\n");
    write_processors();
    for (const RecordedGpu& gpu : recording.gpus) add_pci(gpu.path, gpu.node);
    for (const RecordedNic& nic : recording.nics) add_nic(nic);
    for (const RecordedVirtual& interface : recording.virtuals)
      add_interface(interface.name, "devices/virtual", interface.up, -1);
    folder_.write("proc/net/route", routes_);
  }

  Topology topology() const {
    const std::unique_ptr<CpuSource> cpu = open_sysfs(root());
    const RecordedGpus gpus(recording_);
    return build_topology({*cpu, &gpus, root(), recording_.variables});
  }
  const std::string& root() const { return folder_.path(); }

 private:
  void write_processors() {
    std::string online;
    for (size_t i = 0; i < recording_.nodes.size(); ++i) {
      const std::string node = "sys/devices/system/node/node" + std::to_string(i);
      folder_.write(node + "/cpulist", recording_.nodes[i] + "\n");
      folder_.write(node + "/meminfo", "Node 0 MemTotal:       1048576 kB\n");
      online += (i > 0 ? "," : "") + recording_.nodes[i];
    }
    folder_.write("sys/devices/system/cpu/online", online + "\n");
    const size_t all = parse_cpu_list(online).size();
    for (const std::string& socket : recording_.sockets) {
      for (const int cpu : parse_cpu_list(socket)) {
        const int half = static_cast<int>(all) / recording_.threads_per_core, first = cpu % half;
        write_cpu(cpu, "topology/package_cpus_list", socket);
        write_cpu(cpu, "topology/core_cpus_list",
                  recording_.threads_per_core == 1 ? std::to_string(cpu) : cpu_list({first, first + half}));
      }
    }
    for (const std::string& complex : recording_.complexes) {
      for (const int cpu : parse_cpu_list(complex)) {
        write_cpu(cpu, "cache/index0/level", "1");
        write_cpu(cpu, "cache/index0/shared_cpu_list", std::to_string(cpu));
        write_cpu(cpu, "cache/index3/level", "3");
        write_cpu(cpu, "cache/index3/shared_cpu_list", complex);
      }
    }
  }

  void write_cpu(int cpu, const std::string& file, const std::string& text) {
    folder_.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + file, text + "\n");
  }

  // As the kernel has it: a folder in the tree of devices, a link to it where devices are listed.
  std::string add_pci(const std::string& path, int node) {
    const std::string device = "sys/devices/" + path, address = path.substr(path.rfind('/') + 1);
    folder_.write(device + "/numa_node", std::to_string(node) + "\n");
    const bool known = node >= 0 && static_cast<size_t>(node) < recording_.nodes.size();
    folder_.write(device + "/local_cpulist",
                  (known ? recording_.nodes[static_cast<size_t>(node)] : "") + "\n");
    link("sys/bus/pci/devices/" + address, device);
    return device;
  }

  void add_nic(const RecordedNic& nic) {
    const std::string device = add_pci(nic.path, nic.node);
    if (nic.link_layer.empty()) return add_interface(nic.name, device.substr(4), nic.up, nic.megabits);
    const std::string card = "sys/class/infiniband/" + nic.name;
    folder_.write(card + "/ports/1/state", nic.up ? "4: ACTIVE\n" : "1: DOWN\n");
    folder_.write(card + "/ports/1/rate", nic.rate + "\n");
    folder_.write(card + "/ports/1/link_layer", nic.link_layer + "\n");
    link(card + "/device", device);
  }

  void add_interface(const std::string& name, const std::string& device, bool up, int megabits) {
    const std::string folder = "sys/class/net/" + name;
    folder_.write(folder + "/operstate", up ? "up\n" : "down\n");
    folder_.write(folder + "/speed", std::to_string(megabits) + "\n");
    if (!device.starts_with("devices/virtual")) link(folder + "/device", "sys/" + device);
    if (up) routes_ += name + "\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
  }

  void link(const std::string& from, const std::string& to) {
    const std::filesystem::path place = std::filesystem::path(root()) / from;
    std::filesystem::create_directories(place.parent_path());
    std::error_code exists;
    std::filesystem::create_symlink(std::filesystem::path(root()) / to, place, exists);
  }

  Recording recording_;
  base::TemporaryFolder folder_;
  std::string routes_ = "Iface\tDestination\tGateway\n";
};

}  // namespace lockstep::device::testing
