// How the parts of this machine are wired: processors, NUMA nodes, GPUs, network cards, and what lies between
// any two of them, in the words of `nvidia-smi topo -m`.
//
//     const Topology machine = read_topology();            // topology_read.h
//     label(machine.link(0, 1))                             "NV12"
//
// The model is plain data: tests fill it from recorded machines, and everything that is concluded from it
// (topology_advice.h, affinity.h) is a function of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::device {

enum class LinkKind { self, nvlink, pix, pxb, phb, node, sys };  // near to far
constexpr LinkKind kLinkKinds[] = {LinkKind::self, LinkKind::nvlink, LinkKind::pix, LinkKind::pxb,
                                   LinkKind::phb,  LinkKind::node,   LinkKind::sys};

struct Link {
  LinkKind kind = LinkKind::sys;
  int nvlinks = 0;  // bonded, when it is nvlink
  bool operator==(const Link&) const = default;
};
std::string label(const Link& link);    // "X", "NV12", "PIX", ...
const char* name_of(LinkKind kind);     // "X", "NV#", "PIX", ...
const char* meaning_of(LinkKind kind);  // one line for the legend

// From the host bridge down: {"pci0000:00", "0000:00:01.1", "0000:07:00.0"}. Empty: not known.
using PciPath = std::vector<std::string>;
// The PCI part of a resolved sysfs path; what hangs below the device (virtio0, net/eth0) is left out.
PciPath parse_pci_path(std::string_view sysfs_path);

using Cpus = std::vector<int>;               // numbers of logical processors, ascending
Cpus parse_cpu_list(std::string_view text);  // "0-3,8" of sysfs; what is no such list ends it
std::string cpu_list(const Cpus& cpus);      // "0-3,8"

struct Locality {
  int node = -1;  // NUMA node; -1: not known, or every node is as near
  Cpus cpus;      // as near as any
};

struct NumaNode {
  int id = 0;
  Cpus cpus;
  int64_t bytes = 0;  // of memory
};

struct CpuParts {
  Cpus cpus;  // those this process may run on
  std::vector<NumaNode> nodes;
  std::vector<Cpus> sockets;
  std::vector<Cpus> core_complexes;  // processors that share a last-level cache
  std::vector<Cpus> cores;           // processors that share a core
};

struct Gpu {
  std::string name, uuid;
  std::string address;                      // "0000:07:00.0"
  int major = 0, minor = 0;                 // compute capability
  int pcie_generation = 0, pcie_width = 0;  // what card and slot can do; 0: not known
  PciPath path;
  Locality near;
};

struct Nic {
  enum class Kind { ethernet, infiniband, roce };
  std::string name;  // "mlx5_0", "eth0"
  Kind kind = Kind::ethernet;
  bool up = false;
  double gbits = 0;                     // per second; 0: not known
  std::vector<std::string> interfaces;  // for sockets: "ib0"
  PciPath path;
  Locality near;
  bool has_verbs() const { return kind != Kind::ethernet; }
};
const char* name_of(Nic::Kind kind);

struct NetInterface {  // what sockets can use, cards or not
  std::string name;
  bool is_physical = false, up = false;
  bool has_route = false;  // of IPv4: it has an address
  double gbits = 0;
};

struct Topology {
  std::string cpu_source;             // "hwloc, interface 2.8", "sysfs"
  std::string cpu_model, cpu_vendor;  // "AuthenticAMD"
  CpuParts cpu;
  std::vector<Gpu> gpus;                       // in NVML's order
  std::vector<std::vector<Link>> gpu_links;    // [gpu][gpu]
  std::vector<std::vector<bool>> peer_access;  // [gpu][gpu]: the driver lets one read and write the other
  std::vector<int> visible;                    // gpus that CUDA_VISIBLE_DEVICES leaves, in its order
  std::vector<Nic> nics;
  std::vector<NetInterface> interfaces;
  std::map<std::string, std::string> variables;  // NCCL_* of the environment

  // Devices are numbered as the matrix shows them: GPUs, then network cards.
  int devices() const { return static_cast<int>(gpus.size() + nics.size()); }
  Link link(int a, int b) const;
  std::string device_name(int device) const;  // "GPU0", "NIC1"
};

// Between two PCI devices; NUMA nodes tell NODE from SYS where the host bridges differ.
Link pci_link(const PciPath& a, int node_a, const PciPath& b, int node_b);

// The node with these processors; -1 when they are in none or in several.
int node_with(const std::vector<NumaNode>& nodes, const Cpus& cpus);

}  // namespace lockstep::device
