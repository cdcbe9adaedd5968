// Where the topology comes from: who knows the processors (hwloc, or sysfs where it is not installed), NVML
// for GPUs, sysfs for network cards. Every source is an interface or a root folder, so that a recorded
// machine takes the same way as this one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/device/topology/topology.h"

namespace lockstep::device {

class CpuSource {
 public:
  virtual ~CpuSource() = default;
  virtual std::string name() const = 0;
  virtual CpuParts parts()
      const = 0;  // `cpus` are all that are online and not kept from this process's group
  virtual Locality near(const std::string& pci_address) const = 0;
};

// Null when libhwloc.so.15 is not here. `synthetic` is hwloc's description of a machine that is not this one.
std::unique_ptr<CpuSource> open_hwloc(const char* synthetic = nullptr);
std::unique_ptr<CpuSource> open_sysfs(const std::string& root);

// What is asked of NVML, GPU by GPU and pair by pair; nothing where it does not answer.
class GpuSource {
 public:
  struct NvLink {
    enum class Remote { gpu, npu, nvswitch, unknown };
    bool active = false;
    Remote remote = Remote::unknown;
    std::string address;  // of the other end; empty: not told
  };

  virtual ~GpuSource() = default;
  virtual int count() const = 0;
  virtual std::optional<Gpu> gpu(int index) const = 0;  // path and near are left empty
  virtual std::optional<NvLink> nvlink(int index, int link) const = 0;
  virtual std::optional<LinkKind> common_ancestor(int a, int b) const = 0;
  virtual bool peer_access(int a, int b) const = 0;
};
std::unique_ptr<GpuSource> open_nvml();  // null when there is no NVIDIA driver

struct TopologySources {
  const CpuSource& cpu;
  const GpuSource* gpu = nullptr;
  std::string root = "";                         // of sysfs and procfs; "" is this machine
  std::map<std::string, std::string> variables;  // NCCL_* and CUDA_VISIBLE_DEVICES
};
Topology build_topology(const TopologySources& sources);
Topology read_topology();  // of this machine

// Parts of build_topology, for its tests and for each other.
std::vector<Nic> read_nics(const std::string& root, const CpuSource& cpu);
std::vector<NetInterface> read_interfaces(const std::string& root);
PciPath read_pci_path(const std::string& root, const std::string& address);

}  // namespace lockstep::device
