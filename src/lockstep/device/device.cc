#include "lockstep/device/device.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/device/cpu_device.h"
#include "lockstep/device/cuda_facts.h"
#include "lockstep/device/driver.h"
#include "lockstep/device/opening.h"
#include "lockstep/device/other_devices.h"
#include "lockstep/device/plugin.h"

namespace lockstep::device {
namespace {

// A shared library is loaded once for a process, whoever asks, and never unloaded: CUDA keeps threads
// and exit handlers in it. So this is the process's state, not ours.
struct LoadedPlugin {
  std::mutex mutex;
  void* handle = nullptr;
};

LoadedPlugin& loaded_plugin() {
  static LoadedPlugin plugin;
  return plugin;
}

template <class Function>
Function find_symbol(void* handle, const char* name) {
  const auto function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) {
    throw base::ConfigError(
        404, fmt::format("{} does not export {}: install library and plugin from the same build", kPluginFile,
                         name));
  }
  return function;
}

void* load_plugin() {
  LoadedPlugin& plugin = loaded_plugin();
  const std::lock_guard lock(plugin.mutex);
  if (plugin.handle != nullptr) return plugin.handle;
  const std::string path = plugin_path();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    throw base::ConfigError(404,
                            fmt::format("the CUDA plugin cannot be loaded ({}): run `lockstep setup`, or "
                                        "set run.device=cpu",
                                        reason != nullptr ? reason : path));
  }
  const int abi = find_symbol<PluginAbi>(handle, "lockstep_cuda_abi")();
  if (abi != kPluginAbi) {
    throw base::ConfigError(
        404,
        fmt::format("{} has interface version {}, this library needs {}: install both from the same build",
                    path, abi, kPluginAbi));
  }
  return plugin.handle = handle;
}

void require_cuda(const CudaAvailability& cuda, int index) {
  if (cuda.devices == 0) {
    throw base::ConfigError(
        402, fmt::format("CUDA cannot be used here: {}; set run.device=cpu or auto", cuda.why_not));
  }
  if (index >= cuda.devices) {
    throw base::ConfigError(403, fmt::format("cuda:{} does not exist: {} usable GPU{} on this host; start at "
                                             "most {} process{}, or set run.device=cpu",
                                             index, cuda.devices, cuda.devices == 1 ? "" : "s", cuda.devices,
                                             cuda.devices == 1 ? "" : "es"));
  }
}

std::unique_ptr<Device> open_plugin(int index) {
  return std::unique_ptr<Device>(find_symbol<PluginOpen>(load_plugin(), "lockstep_cuda_open")(index));
}

// Lanes and NCCL's own streams together are more than the default 8 hardware queues; streams that share one
// wait for each other, which a pipeline's messages must not. More queues make a context slower to make. Read
// then, and set before any thread may read the environment.
void ask_for_queues() { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

// The GPU that is asked for, by number; -1 when no GPU or no device at all is.
int requested_gpu(const std::string& request, int local_rank) {
  if (request == "auto" || request == "cuda") return local_rank;
  constexpr std::string_view kPrefix = "cuda:";
  if (!request.starts_with(kPrefix)) return -1;
  return base::parse_number<int>(std::string_view(request).substr(kPrefix.size())).value_or(-1);
}

}  // namespace

std::string Id::to_string() const { return kind == Kind::cpu ? "cpu" : fmt::format("cuda:{}", index); }

std::unique_ptr<Device> open(Id id) {
  if (id.kind == Kind::cpu) return std::make_unique<CpuDevice>();
  require_cuda(cuda_availability(), id.index);
  ask_for_queues();
  return open_plugin(id.index);
}

OpeningSteps opening_steps(const std::string& request, int local_rank, bool several_ranks) {
  if (request != "cpu" && several_ranks) ask_for_queues();
  const auto driver = std::make_shared<Driver>();
  OpeningSteps steps;
  // A driver that starts tells all that is needed; why one does not, NVML knows best, which takes its time.
  steps.find = [=] {
    const int index = requested_gpu(request, local_rank);
    std::error_code ignored;
    const bool works = index >= 0 && std::filesystem::exists(plugin_path(), ignored) && driver->start() &&
                       driver->accepts(index);
    return works ? Id{Kind::cuda, index} : resolve(request, local_rank);
  };
  steps.make_context = [=](Id id) { driver->make_context(id.index); };
  steps.load = [](base::Laps& laps) {
    void* plugin = load_plugin();
    laps.end("load the CUDA plugin");
    find_symbol<PluginLoad>(plugin, "lockstep_cuda_load")(&laps);
  };
  steps.warm_up = [](Id id, base::Laps& laps) {
    find_symbol<PluginWarmUp>(load_plugin(), "lockstep_cuda_warm_up")(id.index, &laps);
  };
  steps.open = [](Id id) {
    return id.kind == Kind::cpu ? std::make_unique<CpuDevice>() : open_plugin(id.index);
  };
  return steps;
}

Id resolve(const std::string& request, int local_rank) {
  if (request == "cpu") return {Kind::cpu, 0};
  if (request == "auto" || request == "cuda") {
    const CudaAvailability cuda = cuda_availability();
    if (request == "auto" && cuda.devices == 0) return {Kind::cpu, 0};
    require_cuda(cuda, local_rank);
    return {Kind::cuda, local_rank};
  }
  const int index = requested_gpu(request, local_rank);
  if (index < 0) {
    if (const OtherDevice* other = find_other_device(request))
      throw base::ConfigError(407, refusal_of(*other));
    throw base::ConfigError(
        401, fmt::format("run.device = \"{}\" is not a device; use auto, cpu, cuda or cuda:N", request));
  }
  require_cuda(cuda_availability(), index);
  return {Kind::cuda, index};
}

CudaAvailability cuda_availability() { return judge_cuda(read_cuda_facts()); }

void* cuda_plugin() {
  LoadedPlugin& plugin = loaded_plugin();
  const std::lock_guard lock(plugin.mutex);
  return plugin.handle;
}

}  // namespace lockstep::device
