// GPUs and their links through NVML, opened at run time: absent is fine.
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "lockstep/base/signals_blocked.h"
#include "lockstep/device/topology/topology_read.h"

namespace lockstep::device {
namespace {

struct PciInfo {  // nvmlPciInfo_t
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

// The functions of NVML's C interface that are used; every one returns 0 when it succeeded. Those after
// `capability` came with later drivers: without them the facts are fewer.
struct Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, void**) = nullptr;
  int (*name)(void*, char*, unsigned) = nullptr;
  int (*uuid)(void*, char*, unsigned) = nullptr;
  int (*pci)(void*, PciInfo*) = nullptr;
  int (*capability)(void*, int*, int*) = nullptr;
  int (*max_generation)(void*, unsigned*) = nullptr;
  int (*max_width)(void*, unsigned*) = nullptr;
  int (*common_ancestor)(void*, void*, int*) = nullptr;
  int (*peer_status)(void*, void*, int, int*) = nullptr;
  int (*link_state)(void*, unsigned, int*) = nullptr;
  int (*link_remote)(void*, unsigned, PciInfo*) = nullptr;
  int (*link_remote_type)(void*, unsigned, int*) = nullptr;

  bool find(void* library) {
    const auto look_up = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      return function != nullptr;
    };
    look_up(max_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
    look_up(max_width, "nvmlDeviceGetMaxPcieLinkWidth");
    look_up(common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
    look_up(peer_status, "nvmlDeviceGetP2PStatus");
    look_up(link_state, "nvmlDeviceGetNvLinkState");
    look_up(link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    look_up(link_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
    return look_up(init, "nvmlInit_v2") && look_up(shutdown, "nvmlShutdown") &&
           look_up(count, "nvmlDeviceGetCount_v2") && look_up(handle, "nvmlDeviceGetHandleByIndex_v2") &&
           look_up(name, "nvmlDeviceGetName") && look_up(uuid, "nvmlDeviceGetUUID") &&
           look_up(pci, "nvmlDeviceGetPciInfo_v3") &&
           look_up(capability, "nvmlDeviceGetCudaComputeCapability");
  }
};

// NVML writes "00000000:07:00.0", the kernel "0000:07:00.0".
std::string address_of(const PciInfo& info) {
  std::string text(info.bus_id, std::find(std::begin(info.bus_id), std::end(info.bus_id), '\0'));
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text.size() > 12 && text.starts_with("0000")) text.erase(0, 4);
  return text;
}

std::optional<LinkKind> kind_of(int level) {  // nvmlGpuTopologyLevel_t
  switch (level) {
    case 0:  // two GPUs of one board
    case 10:
      return LinkKind::pix;
    case 20:
      return LinkKind::pxb;
    case 30:
      return LinkKind::phb;
    case 40:
      return LinkKind::node;
    case 50:
      return LinkKind::sys;
    default:
      return std::nullopt;
  }
}

class Nvml : public GpuSource {
 public:
  ~Nvml() override {
    if (ready_) call_.shutdown();
    if (library_ != nullptr) dlclose(library_);
  }

  bool open() {
    const base::SignalsBlocked blocked;  // it may start threads
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    ready_ = library_ != nullptr && call_.find(library_) && call_.init() == 0;
    return ready_;
  }

  int count() const override {
    unsigned count = 0;
    return call_.count(&count) == 0 ? static_cast<int>(count) : 0;
  }

  std::optional<Gpu> gpu(int index) const override {
    void* handle = handle_of(index);
    char text[96] = {};  // NVML's own buffers are 80 and 96 bytes
    PciInfo pci{};
    Gpu gpu;
    if (handle == nullptr || call_.pci(handle, &pci) != 0) return std::nullopt;
    gpu.address = address_of(pci);
    if (call_.name(handle, text, sizeof text) == 0) gpu.name = text;
    if (call_.uuid(handle, text, sizeof text) == 0) gpu.uuid = text;
    call_.capability(handle, &gpu.major, &gpu.minor);
    unsigned number = 0;
    if (call_.max_generation && call_.max_generation(handle, &number) == 0)
      gpu.pcie_generation = static_cast<int>(number);
    if (call_.max_width && call_.max_width(handle, &number) == 0) gpu.pcie_width = static_cast<int>(number);
    return gpu;
  }

  std::optional<NvLink> nvlink(int index, int link) const override {
    void* handle = handle_of(index);
    const auto number = static_cast<unsigned>(link);
    int active = 0, type = 255;
    if (handle == nullptr || !call_.link_state || call_.link_state(handle, number, &active) != 0)
      return std::nullopt;
    NvLink found{.active = active == 1};
    if (!found.active) return found;
    PciInfo remote{};
    if (call_.link_remote && call_.link_remote(handle, number, &remote) == 0)
      found.address = address_of(remote);
    if (call_.link_remote_type && call_.link_remote_type(handle, number, &type) == 0) {
      found.remote = type == 0   ? NvLink::Remote::gpu
                     : type == 1 ? NvLink::Remote::npu
                     : type == 2 ? NvLink::Remote::nvswitch
                                 : NvLink::Remote::unknown;
    }
    return found;
  }

  std::optional<LinkKind> common_ancestor(int a, int b) const override {
    void *first = handle_of(a), *second = handle_of(b);
    int level = -1;
    if (!first || !second || !call_.common_ancestor || call_.common_ancestor(first, second, &level) != 0)
      return std::nullopt;
    return kind_of(level);
  }

  bool peer_access(int a, int b) const override {
    constexpr int kRead = 0, kWrite = 1;  // nvmlGpuP2PCapsIndex_t
    void *first = handle_of(a), *second = handle_of(b);
    if (!first || !second || !call_.peer_status) return false;
    const auto is_ok = [&](int capability) {
      int status = -1;
      return call_.peer_status(first, second, capability, &status) == 0 && status == 0;
    };
    return is_ok(kRead) && is_ok(kWrite);
  }

 private:
  void* handle_of(int index) const {
    void* handle = nullptr;
    return call_.handle(static_cast<unsigned>(index), &handle) == 0 ? handle : nullptr;
  }

  void* library_ = nullptr;
  bool ready_ = false;
  Functions call_;
};

}  // namespace

std::unique_ptr<GpuSource> open_nvml() {
  auto nvml = std::make_unique<Nvml>();
  if (!nvml->open()) return nullptr;
  return nvml;
}

}  // namespace lockstep::device
