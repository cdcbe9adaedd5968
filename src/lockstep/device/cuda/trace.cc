// What runs on the GPU, as CUPTI notes it. CUPTI comes with LibTorch (libtorch_cpu.so links it) and is looked
// up when a trace is asked for, so that the plugin does not need it otherwise.
#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "lockstep/device/cuda/cuda_device.h"

namespace lockstep::device {
namespace {

// name in CUPTI
#define CUPTI_FUNCTIONS(ROW)                  \
  ROW(cuptiActivityRegisterCallbacks)         \
  ROW(cuptiActivityEnable)                    \
  ROW(cuptiActivityDisable)                   \
  ROW(cuptiActivityFlushAll)                  \
  ROW(cuptiActivityGetNextRecord)             \
  ROW(cuptiActivityPushExternalCorrelationId) \
  ROW(cuptiActivityPopExternalCorrelationId)

struct Cupti {
#define ROW(name) decltype(&::name) name = nullptr;
  CUPTI_FUNCTIONS(ROW)
#undef ROW
  std::string why_not;
};

Cupti load() {
  Cupti cupti;
  void* library = ::dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    cupti.why_not = reason != nullptr ? reason : "libcupti.so.13 cannot be opened";
    return cupti;
  }
#define ROW(name)                                                               \
  cupti.name = reinterpret_cast<decltype(cupti.name)>(::dlsym(library, #name)); \
  if (cupti.name == nullptr) cupti.why_not = "this CUPTI lacks " #name;
  CUPTI_FUNCTIONS(ROW)
#undef ROW
  return cupti;
}

const Cupti& cupti() {
  static const Cupti& loaded = *new Cupti(load());
  return loaded;
}

// The calls are asked for because tags are only noted beside them.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

// CUPTI hands over buffers on threads of its own and knows one receiver in a process: this one.
struct Received {
  std::mutex mutex;
  std::vector<std::pair<uint32_t, Traced>> ran;  // with CUPTI's correlation number
  std::map<uint32_t, int64_t> tags;              // by that number
};
Received& received() {
  static Received& all = *new Received;
  return all;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  constexpr size_t kBytes = 4 << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBytes));
  *bytes = *buffer != nullptr ? kBytes : 0;
  *most_records = 0;
}

template <class Record>
void add(Received& all, const Record& record, const char* name) {
  all.ran.push_back({record.correlationId,
                     {.name = name,
                      .begin_ns = static_cast<int64_t>(record.start),
                      .end_ns = static_cast<int64_t>(record.end),
                      .in_graph = record.graphId != 0}});
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Received& all = received();
  const std::lock_guard lock(all.mutex);
  CUpti_Activity* record = nullptr;
  while (cupti().cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = *reinterpret_cast<CUpti_ActivityKernel9*>(record);
        add(all, kernel, kernel.name);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        add(all, *reinterpret_cast<CUpti_ActivityMemcpy5*>(record), "copy");
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        add(all, *reinterpret_cast<CUpti_ActivityMemset4*>(record), "fill");
        break;
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& link = *reinterpret_cast<CUpti_ActivityExternalCorrelation*>(record);
        all.tags[link.correlationId] = static_cast<int64_t>(link.externalId);
        break;
      }
      default:
        break;
    }
  }
  std::free(buffer);
}

}  // namespace

std::string CudaDevice::begin_trace() {
  make_current();
  if (!cupti().why_not.empty()) return cupti().why_not;
  if (cupti().cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS) {
    return "CUPTI is not available: another profiler may be active";
  }
  for (const CUpti_ActivityKind kind : kKinds) {
    if (cupti().cuptiActivityEnable(kind) != CUPTI_SUCCESS) return "CUPTI cannot record GPU activity";
  }
  return "";
}

void CudaDevice::tag(int64_t value) {
  uint64_t before = 0;
  cupti().cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &before);
  if (value < 0) return;
  cupti().cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                                 static_cast<uint64_t>(value));
}

std::vector<Traced> CudaDevice::end_trace() {
  make_current();
  cupti().cuptiActivityFlushAll(1);  // what has not ended too
  for (const CUpti_ActivityKind kind : kKinds) cupti().cuptiActivityDisable(kind);
  Received& all = received();
  const std::lock_guard lock(all.mutex);
  std::vector<Traced> traced;
  for (auto& [correlation, one] : all.ran) {
    if (const auto tag = all.tags.find(correlation); tag != all.tags.end()) one.tag = tag->second;
    traced.push_back(std::move(one));
  }
  all.ran.clear();
  all.tags.clear();
  return traced;
}

}  // namespace lockstep::device
