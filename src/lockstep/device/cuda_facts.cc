#include "lockstep/device/cuda_facts.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/signals_blocked.h"
#include "lockstep/base/text.h"
#include "lockstep/device/libraries.h"
#include "lockstep/device/plugin.h"

namespace lockstep::device {
namespace {

using Library = std::unique_ptr<void, decltype([](void* handle) { dlclose(handle); })>;

Library open_library(const char* name) { return Library(dlopen(name, RTLD_NOW | RTLD_LOCAL)); }

// The few functions of NVML that are needed, in its C interface; every one returns 0 when it succeeded.
struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, void**) = nullptr;
  int (*name)(void*, char*, unsigned) = nullptr;
  int (*uuid)(void*, char*, unsigned) = nullptr;
  int (*capability)(void*, int*, int*) = nullptr;

  bool find(void* library) {
    bool complete = true;
    const auto look_up = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      complete = complete && function != nullptr;
    };
    look_up(init, "nvmlInit_v2");
    look_up(shutdown, "nvmlShutdown");
    look_up(driver_version, "nvmlSystemGetDriverVersion");
    look_up(count, "nvmlDeviceGetCount_v2");
    look_up(handle, "nvmlDeviceGetHandleByIndex_v2");
    look_up(name, "nvmlDeviceGetName");
    look_up(uuid, "nvmlDeviceGetUUID");
    look_up(capability, "nvmlDeviceGetCudaComputeCapability");
    return complete;
  }
};

void ask_nvml(const Nvml& nvml, CudaFacts& facts) {
  char text[96] = {};  // NVML's own buffers are 80 and 96 bytes
  if (nvml.driver_version(text, sizeof text) == 0) facts.driver = text;
  unsigned count = 0;
  if (nvml.count(&count) != 0) return;
  for (unsigned i = 0; i < count; ++i) {
    void* handle = nullptr;
    GpuFacts gpu;
    if (nvml.handle(i, &handle) != 0) continue;
    if (nvml.name(handle, text, sizeof text) == 0) gpu.name = text;
    if (nvml.uuid(handle, text, sizeof text) == 0) gpu.uuid = text;
    if (nvml.capability(handle, &gpu.major, &gpu.minor) != 0) continue;
    facts.gpus.push_back(std::move(gpu));
  }
}

// Display and 3D controllers of NVIDIA's, as the kernel lists them.
int gpus_on_bus(const std::string& folder) {
  const auto number_in = [](const std::filesystem::path& file) {
    return std::strtol(base::try_read_file(file.string(), 64).text.c_str(), nullptr, 16);
  };
  int count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const long kind = number_in(it->path() / "class") >> 8;
    if (number_in(it->path() / "vendor") == 0x10de && (kind == 0x0300 || kind == 0x0302)) ++count;
  }
  return count;
}

const GpuFacts* find_gpu(const std::vector<GpuFacts>& gpus, std::string_view entry) {
  if (const std::optional<size_t> index = base::parse_number<size_t>(entry))
    return *index < gpus.size() ? &gpus[*index] : nullptr;
  // A slice of a GPU (MIG) is of the same generation as the GPUs of the machine.
  if (entry.starts_with("MIG-")) return gpus.empty() ? nullptr : &gpus.front();
  if (!entry.starts_with("GPU-")) return nullptr;
  for (const GpuFacts& gpu : gpus) {
    if (gpu.uuid.starts_with(entry)) return &gpu;
  }
  return nullptr;
}

}  // namespace

bool is_new_enough(int major, int minor) {
  return major > kOldestCapability[0] || (major == kOldestCapability[0] && minor >= kOldestCapability[1]);
}

std::vector<GpuFacts> visible_gpus(const std::vector<GpuFacts>& gpus,
                                   const std::optional<std::string>& visible) {
  if (!visible) return gpus;
  std::vector<GpuFacts> result;
  std::string_view rest = *visible;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view entry = rest.substr(0, comma);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    const GpuFacts* gpu = find_gpu(gpus, entry);
    if (gpu == nullptr) break;
    result.push_back(*gpu);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return result;
}

namespace {

CudaAvailability unusable(const CudaFacts& facts, std::string why, std::string remedy) {
  return {.why_not = std::move(why),
          .remedy = std::move(remedy),
          .is_there = !facts.gpus.empty() || facts.on_bus > 0};
}

// A newer one behind an old one is reached by its own number.
std::string remedy_for_old_gpu(const CudaFacts& facts) {
  std::vector<std::string> newer;
  for (size_t i = 0; i < facts.gpus.size(); ++i) {
    if (is_new_enough(facts.gpus[i].major, facts.gpus[i].minor)) newer.push_back(std::to_string(i));
  }
  if (newer.empty()) return "train on the CPU, or on a GPU of the Turing generation or newer";
  return fmt::format("CUDA_VISIBLE_DEVICES={} selects those that are new enough", base::join(newer, ","));
}

}  // namespace

CudaAvailability judge_cuda(const CudaFacts& facts) {
  const std::string install = fmt::format("install NVIDIA driver {} or newer", kOldestDriver);
  if (!facts.has_nvml || !facts.has_libcuda) {
    return unusable(facts, "no NVIDIA driver",
                    install + "; in a container, start it with the GPUs (--gpus all)");
  }
  const int driver = base::leading_number<int>(facts.driver).value_or(0);
  if (driver < kOldestDriver) {
    return unusable(facts,
                    fmt::format("driver {} is older than {}",
                                driver > 0 ? std::to_string(driver) : "of unknown version", kOldestDriver),
                    install);
  }
  if (facts.gpus.empty()) return unusable(facts, "the NVIDIA driver sees no GPU", "check nvidia-smi");
  const std::vector<GpuFacts> gpus = visible_gpus(facts.gpus, facts.visible_devices);
  if (gpus.empty()) {
    return unusable(facts, fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides every GPU", *facts.visible_devices),
                    "unset it, or set run.device=cpu to use the CPU");
  }
  // Only GPUs before the first one that is too old are counted, so that cuda:0 to cuda:N-1 are all usable.
  int usable = 0;
  for (const GpuFacts& gpu : gpus) {
    if (!is_new_enough(gpu.major, gpu.minor)) break;
    ++usable;
  }
  if (usable == 0) {
    const GpuFacts& gpu = gpus.front();
    return unusable(facts,
                    fmt::format("{} has compute capability {}.{}, but {}.{} is needed", gpu.name, gpu.major,
                                gpu.minor, kOldestCapability[0], kOldestCapability[1]),
                    remedy_for_old_gpu(facts));
  }
  if (!facts.has_plugin) {
    return unusable(facts, "the CUDA plugin has not been built",
                    "build it with ./lockstep setup (./dev build --cuda in a checkout)");
  }
  return {.devices = usable, .is_there = true};
}

CudaFacts read_cuda_facts() {
  const base::SignalsBlocked blocked;  // the driver's libraries start threads
  CudaFacts facts;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = visible;
  std::error_code ignored;
  facts.has_plugin = std::filesystem::exists(plugin_path(), ignored);
  facts.has_flash = std::filesystem::exists(path_beside("liblockstep_flash.so"), ignored);
  facts.on_bus = gpus_on_bus("/sys/bus/pci/devices");
  facts.has_libcuda = open_library("libcuda.so.1") != nullptr;
  const Library library = open_library("libnvidia-ml.so.1");
  Nvml nvml;
  if (!library || !nvml.find(library.get()) || nvml.init() != 0) return facts;
  facts.has_nvml = true;
  ask_nvml(nvml, facts);
  nvml.shutdown();
  return facts;
}

std::string plugin_path() { return path_beside(kPluginFile); }

}  // namespace lockstep::device
