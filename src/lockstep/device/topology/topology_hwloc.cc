// Processors and the locality of devices through hwloc, opened at run time: the program runs where it is not.
#include <dlfcn.h>
#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>

#include "lockstep/device/topology/topology_read.h"

namespace lockstep::device {
namespace {

// Looked up by name, typed by hwloc's own header.
struct Functions {
  decltype(&hwloc_get_api_version) version = nullptr;
  decltype(&hwloc_topology_init) init = nullptr;
  decltype(&hwloc_topology_set_io_types_filter) set_io_filter = nullptr;
  decltype(&hwloc_topology_set_synthetic) set_synthetic = nullptr;
  decltype(&hwloc_topology_load) load = nullptr;
  decltype(&hwloc_topology_destroy) destroy = nullptr;
  decltype(&hwloc_get_type_depth) type_depth = nullptr;
  decltype(&hwloc_get_nbobjs_by_depth) count = nullptr;
  decltype(&hwloc_get_obj_by_depth) object = nullptr;
  decltype(&hwloc_bitmap_next) next_bit = nullptr;

  bool find(void* library) {
    bool complete = true;
    const auto look_up = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      complete = complete && function != nullptr;
    };
    look_up(version, "hwloc_get_api_version");
    look_up(init, "hwloc_topology_init");
    look_up(set_io_filter, "hwloc_topology_set_io_types_filter");
    look_up(set_synthetic, "hwloc_topology_set_synthetic");
    look_up(load, "hwloc_topology_load");
    look_up(destroy, "hwloc_topology_destroy");
    look_up(type_depth, "hwloc_get_type_depth");
    look_up(count, "hwloc_get_nbobjs_by_depth");
    look_up(object, "hwloc_get_obj_by_depth");
    look_up(next_bit, "hwloc_bitmap_next");
    return complete;
  }
};

class Hwloc : public CpuSource {
 public:
  ~Hwloc() override {
    if (topology_ != nullptr) call_.destroy(topology_);
    if (library_ != nullptr) dlclose(library_);
  }

  // Whether there is a hwloc of the interface that we were compiled for.
  bool open(const char* synthetic) {
    library_ = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr || !call_.find(library_)) return false;
    if (call_.version() >> 16 != HWLOC_API_VERSION >> 16 || call_.init(&topology_) != 0) return false;
    if (synthetic != nullptr && call_.set_synthetic(topology_, synthetic) != 0) return false;
    call_.set_io_filter(topology_, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    return call_.load(topology_) == 0;
  }

  std::string name() const override {
    const unsigned version = call_.version();
    return fmt::format("hwloc, interface {}.{}", version >> 16, version >> 8 & 0xff);
  }

  CpuParts parts() const override {
    CpuParts parts;
    for_each(HWLOC_OBJ_MACHINE, [&](hwloc_obj_t machine) { parts.cpus = cpus_of(machine); });
    for_each(HWLOC_OBJ_NUMANODE, [&](hwloc_obj_t node) {
      parts.nodes.push_back({static_cast<int>(node->os_index), cpus_of(node),
                             static_cast<int64_t>(node->attr->numanode.local_memory)});
    });
    for_each(HWLOC_OBJ_PACKAGE, [&](hwloc_obj_t socket) { parts.sockets.push_back(cpus_of(socket)); });
    for_each(HWLOC_OBJ_CORE, [&](hwloc_obj_t core) { parts.cores.push_back(cpus_of(core)); });
    for (const hwloc_obj_type_t cache : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
      if (!parts.core_complexes.empty()) break;
      for_each(cache, [&](hwloc_obj_t shared) { parts.core_complexes.push_back(cpus_of(shared)); });
    }
    if (parts.sockets.empty()) parts.sockets.push_back(parts.cpus);
    if (parts.core_complexes.empty()) parts.core_complexes = parts.sockets;
    return parts;
  }

  Locality near(const std::string& pci_address) const override {
    Locality near;
    for_each(HWLOC_OBJ_PCI_DEVICE, [&](hwloc_obj_t device) {
      const auto& pci = device->attr->pcidev;
      if (fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func) != pci_address)
        return;
      hwloc_obj_t above = device;
      while (above != nullptr && above->cpuset == nullptr) above = above->parent;
      if (above == nullptr) return;
      near.cpus = cpus_of(above);
      const int first = call_.next_bit(above->nodeset, -1);
      near.node = call_.next_bit(above->nodeset, first) < 0 ? first : -1;
    });
    return near;
  }

 private:
  template <class Body>
  void for_each(hwloc_obj_type_t type, const Body& body) const {
    const int depth = call_.type_depth(topology_, type);
    if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) return;
    const unsigned count = call_.count(topology_, depth);
    for (unsigned i = 0; i < count; ++i) body(call_.object(topology_, depth, i));
  }

  Cpus cpus_of(hwloc_obj_t object) const {
    Cpus cpus;
    if (object->cpuset == nullptr) return cpus;
    for (int cpu = -1; (cpu = call_.next_bit(object->cpuset, cpu)) >= 0;) cpus.push_back(cpu);
    return cpus;
  }

  void* library_ = nullptr;
  Functions call_;
  hwloc_topology_t topology_ = nullptr;
};

}  // namespace

std::unique_ptr<CpuSource> open_hwloc(const char* synthetic) {
  auto hwloc = std::make_unique<Hwloc>();
  if (!hwloc->open(synthetic)) return nullptr;
  return hwloc;
}

}  // namespace lockstep::device
