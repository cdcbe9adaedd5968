#include "lockstep/device/cuda_facts.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>

#include "lockstep/base/signals_blocked.h"
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

const GpuFacts* find_gpu(const std::vector<GpuFacts>& gpus, std::string_view entry) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error == std::errc() && end == entry.data() + entry.size())
    return index < gpus.size() ? &gpus[index] : nullptr;
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

CudaAvailability judge_cuda(const CudaFacts& facts) {
  if (!facts.has_nvml || !facts.has_libcuda) return {0, "no NVIDIA driver"};
  int driver = 0;
  std::from_chars(facts.driver.data(), facts.driver.data() + facts.driver.size(), driver);
  if (driver < kOldestDriver) {
    return {0, fmt::format("driver {} is older than {}",
                           driver > 0 ? std::to_string(driver) : "of unknown version", kOldestDriver)};
  }
  if (facts.gpus.empty()) return {0, "the NVIDIA driver sees no GPU"};
  const std::vector<GpuFacts> gpus = visible_gpus(facts.gpus, facts.visible_devices);
  if (gpus.empty())
    return {0, fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides every GPU", *facts.visible_devices)};
  // Only GPUs before the first one that is too old are counted, so that cuda:0 to cuda:N-1 are all usable.
  int usable = 0;
  for (const GpuFacts& gpu : gpus) {
    if (!is_new_enough(gpu.major, gpu.minor)) break;
    ++usable;
  }
  if (usable == 0) {
    const GpuFacts& gpu = gpus.front();
    return {0, fmt::format("{} has compute capability {}.{}, {}.{} is needed", gpu.name, gpu.major, gpu.minor,
                           kOldestCapability[0], kOldestCapability[1])};
  }
  if (!facts.has_plugin) return {0, "the CUDA plugin is not built"};
  return {usable, {}};
}

CudaFacts read_cuda_facts() {
  const base::SignalsBlocked blocked;  // the driver's libraries start threads
  CudaFacts facts;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = visible;
  std::error_code ignored;
  facts.has_plugin = std::filesystem::exists(plugin_path(), ignored);
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
