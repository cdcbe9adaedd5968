#include "lockstep/device/gpu_now.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "lockstep/device/gpu_amd.h"

namespace lockstep::device {

namespace {

// NVML's C interface, as its header documents it.
using Handle = void*;
struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  int type, result;
  union {
    double real;
    unsigned small;
    unsigned long long large;
    long long sign;
  } value;
};
struct EventData {
  Handle device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
struct RunningProcess {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
constexpr int kSmClock = 1, kGpuTemperature = 0, kCorrected = 0, kUncorrected = 1, kVolatile = 0;
constexpr unsigned kNvlinkSent = 138, kNvlinkReceived = 139, kAllLinks = ~0U;  // KiB
constexpr unsigned long long kXid = 8;

struct Reason {
  unsigned long long bit;
  const char* name;
};
constexpr Reason kReasons[] = {{0x2, "clocks set by the user"},
                               {0x4, "power cap"},
                               {0x8, "hardware slowdown"},
                               {0x10, "sync boost"},
                               {0x20, "heat"},
                               {0x40, "heat (hardware)"},
                               {0x80, "power brake"},
                               {0x100, "display clock"}};

}  // namespace

double GpuNow::memory_part() const {
  return memory_total > 0 ? static_cast<double>(memory_used) / static_cast<double>(memory_total) : 0;
}

struct GpuWatch::Library {
  void* handle = nullptr;
  Handle events = nullptr;
  std::map<int, std::vector<int64_t>> xids;  // by GPU
  std::map<Handle, int> index_of;
  struct Traffic {
    unsigned long long sent = 0, received = 0;
    std::chrono::steady_clock::time_point at;
  };
  std::map<int, Traffic> traffic;

  // Calls a function of the library; false: it is not there, or says no.
  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(handle, name));
    return function != nullptr && function(arguments...) == 0;
  }

  bool open() {
    handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr || !call("nvmlInit_v2")) return false;
    listen();
    return true;
  }
  ~Library() {
    if (handle == nullptr) return;
    if (events != nullptr) call("nvmlEventSetFree", events);
    call("nvmlShutdown");
    ::dlclose(handle);
  }
  unsigned count() const {
    unsigned found = 0;
    return call("nvmlDeviceGetCount_v2", &found) ? found : 0;
  }
  std::optional<Handle> device(unsigned index) const {
    Handle found = nullptr;
    return call("nvmlDeviceGetHandleByIndex_v2", index, &found) ? std::optional(found) : std::nullopt;
  }
  // XIDs are told as they happen, to who has asked before.
  void listen() {
    if (!call("nvmlEventSetCreate", &events)) return;
    for (unsigned i = 0; i < count(); ++i) {
      const auto gpu = device(i);
      if (!gpu) continue;
      index_of[*gpu] = static_cast<int>(i);
      call("nvmlDeviceRegisterEvents", *gpu, kXid, events);
    }
  }
  void take_events() {
    constexpr int kMost = 64;
    EventData event{};
    for (int i = 0; events != nullptr && i < kMost && call("nvmlEventSetWait_v2", events, &event, 0U); ++i) {
      const auto gpu = index_of.find(event.device);
      if ((event.type & kXid) != 0 && gpu != index_of.end())
        xids[gpu->second].push_back(static_cast<int64_t>(event.data));
    }
  }
  template <class Number, class... More>
  std::optional<Number> number(const char* name, Handle gpu, More... more) const {
    Number value{};
    return call(name, gpu, more..., &value) ? std::optional(value) : std::nullopt;
  }
  void read_traffic(Handle device, GpuNow& gpu);
  void read_processes(Handle device, GpuNow& gpu) const;
  GpuNow read(int index, Handle device);
};

void GpuWatch::Library::read_traffic(Handle device, GpuNow& gpu) {
  FieldValue fields[2]{};
  fields[0].field = kNvlinkSent, fields[1].field = kNvlinkReceived;
  fields[0].scope = fields[1].scope = kAllLinks;
  if (!call("nvmlDeviceGetFieldValues", device, 2, static_cast<FieldValue*>(fields))) return;
  if (fields[0].result != 0 || fields[1].result != 0) return;  // it has no links
  const auto now = std::chrono::steady_clock::now();
  const Traffic seen{fields[0].value.large, fields[1].value.large, now};
  const auto before = traffic.find(gpu.index);
  if (before != traffic.end()) {
    const double seconds = std::chrono::duration<double>(now - before->second.at).count();
    const auto rate = [&](unsigned long long is, unsigned long long was) {
      return is < was || seconds <= 0 ? 0.0 : 1024.0 * static_cast<double>(is - was) / seconds;
    };
    gpu.nvlink_sent = rate(seen.sent, before->second.sent);
    gpu.nvlink_received = rate(seen.received, before->second.received);
  }
  traffic[gpu.index] = seen;
}

void GpuWatch::Library::read_processes(Handle device, GpuNow& gpu) const {
  constexpr unsigned kMost = 256;
  constexpr unsigned long long kNotKnown = ~0ULL;
  RunningProcess processes[kMost];
  unsigned count = kMost;
  if (!call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count,
            static_cast<RunningProcess*>(processes)))
    return;
  for (unsigned i = 0; i < std::min(count, kMost); ++i) {
    const unsigned long long memory = processes[i].memory;
    gpu.processes.push_back(
        {static_cast<int>(processes[i].pid), memory == kNotKnown ? 0 : static_cast<int64_t>(memory)});
  }
}

GpuNow GpuWatch::Library::read(int index, Handle device) {
  GpuNow gpu;
  gpu.index = index;
  char name[96] = "";
  if (call("nvmlDeviceGetName", device, static_cast<char*>(name), static_cast<unsigned>(sizeof(name))))
    gpu.name = name;
  if (const auto load = number<Utilization>("nvmlDeviceGetUtilizationRates", device))
    gpu.utilization = load->gpu / 100.0;
  if (const auto memory = number<Memory>("nvmlDeviceGetMemoryInfo", device))
    gpu.memory_used = static_cast<int64_t>(memory->used),
    gpu.memory_total = static_cast<int64_t>(memory->total);
  if (const auto milliwatts = number<unsigned>("nvmlDeviceGetPowerUsage", device))
    gpu.watts = *milliwatts / 1e3;
  if (const auto limit = number<unsigned>("nvmlDeviceGetEnforcedPowerLimit", device))
    gpu.watts_limit = *limit / 1e3;
  if (const auto clock = number<unsigned>("nvmlDeviceGetClockInfo", device, kSmClock)) gpu.clock_mhz = *clock;
  if (const auto clock = number<unsigned>("nvmlDeviceGetMaxClockInfo", device, kSmClock))
    gpu.clock_max_mhz = *clock;
  if (const auto heat = number<unsigned>("nvmlDeviceGetTemperature", device, kGpuTemperature))
    gpu.celsius = *heat;
  if (const auto bits = number<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", device)) {
    for (const Reason& reason : kReasons) {
      if ((*bits & reason.bit) != 0) gpu.throttled.push_back(reason.name);
    }
  }
  gpu.ecc_corrected =
      number<unsigned long long>("nvmlDeviceGetTotalEccErrors", device, kCorrected, kVolatile);
  gpu.ecc_broken = number<unsigned long long>("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile);
  gpu.xids = xids[index];
  read_traffic(device, gpu);
  read_processes(device, gpu);
  return gpu;
}

GpuWatch::GpuWatch(std::string amd_root)
    : library_(std::make_unique<Library>()), amd_root_(std::move(amd_root)) {
  if (!library_->open()) library_.reset();
}
GpuWatch::~GpuWatch() = default;

std::vector<GpuNow> GpuWatch::look() {
  std::vector<GpuNow> all;
  if (library_) {
    library_->take_events();
    for (unsigned i = 0; i < library_->count(); ++i) {
      if (const auto gpu = library_->device(i)) all.push_back(library_->read(static_cast<int>(i), *gpu));
    }
  }
  for (GpuNow& gpu : amd_gpus_now(static_cast<int>(all.size()), amd_root_)) all.push_back(std::move(gpu));
  return all;
}

std::vector<std::string> warnings_of(const GpuNow& gpu, bool trains) {
  constexpr double kLeastLoad = 0.9, kLeastMemory = 0.7, kMostMemory = 0.95, kGiB = 1 << 30;
  std::vector<std::string> all;
  const auto say = [&](const std::string& text) {
    all.push_back(fmt::format("GPU {}: {}", gpu.index, text));
  };
  if (trains && gpu.utilization && *gpu.utilization < kLeastLoad)
    say(fmt::format("{:.0f} % busy, below 90 %: `lockstep why` says what it waits for",
                    100 * *gpu.utilization));
  const double used = static_cast<double>(gpu.memory_used) / kGiB,
               total = static_cast<double>(gpu.memory_total) / kGiB;
  if (trains && gpu.memory_total > 0 && gpu.memory_part() < kLeastMemory)
    say(fmt::format(
        "{:.0f} of {:.0f} GiB in use, below 70 %: `lockstep tune` tries fewer, larger slices or less "
        "recomputation",
        used, total));
  if (gpu.memory_part() > kMostMemory)
    say(
        fmt::format("{:.1f} of {:.1f} GiB in use, above 95 %: little is left; memory.recompute or more "
                    "ranks lower it",
                    used, total));
  for (const std::string& reason : gpu.throttled) {
    if (reason.starts_with("heat") || reason == "hardware slowdown" || reason == "power brake")
      say(fmt::format("slowed down by {}{}: check its cooling and power supply", reason,
                      gpu.celsius ? fmt::format(" at {} C", *gpu.celsius) : ""));
  }
  if (gpu.ecc_broken.value_or(0) > 0)
    say(fmt::format("{} memory errors that could not be corrected: take it out of service", *gpu.ecc_broken));
  for (const int64_t xid : gpu.xids)
    say(fmt::format("the driver reports XID {}: see its entry in NVIDIA's XID list", xid));
  return all;
}

}  // namespace lockstep::device
