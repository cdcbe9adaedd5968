// A stand-in for libnvidia-ml.so.1 and libcuda.so.1 that tells of one GPU, as the environment describes it:
// for tests of what is said about GPUs that nobody here has.
#include <cstdio>
#include <cstdlib>

namespace {

int copy(char* to, unsigned size, const char* variable) {
  const char* text = std::getenv(variable);
  std::snprintf(to, size, "%s", text != nullptr ? text : "");
  return 0;
}

const char* state() { return std::getenv("FAKE_GPU_NOW"); }
unsigned long long now(int field) {
  const char* at = state();
  unsigned long long value = 0;
  for (int i = 0; at != nullptr && i <= field; ++i) {
    char* end = nullptr;
    value = std::strtoull(at, &end, 10);
    at = end;
  }
  return value;
}

struct FakeEvent {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
bool told = false;
struct FakeProcess {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return std::getenv("FAKE_GPU") != nullptr ? 0 : 1; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return copy(text, size, "FAKE_GPU_DRIVER"); }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** handle) { return *handle = nullptr, 0; }
int nvmlDeviceGetName(void*, char* text, unsigned size) { return copy(text, size, "FAKE_GPU"); }
int nvmlDeviceGetUUID(void*, char* text, unsigned size) { return std::snprintf(text, size, "GPU-0"), 0; }
// How it is doing: "busy memory_used memory_total milliwatts mhz celsius reasons broken xid".
int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {
  return rates[0] = static_cast<unsigned>(now(0)), rates[1] = 0, state() != nullptr ? 0 : 3;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = now(2), memory[1] = now(2) - now(1), memory[2] = now(1);
  return state() != nullptr ? 0 : 3;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  return *milliwatts = static_cast<unsigned>(now(3)), 0;
}
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) {
  return *mhz = static_cast<unsigned>(now(4)), kind == 1 ? 0 : 2;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  return *celsius = static_cast<unsigned>(now(5)), 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) { return *bits = now(6), 0; }
int nvmlDeviceGetTotalEccErrors(void*, int kind, int, unsigned long long* count) {
  return *count = kind == 1 ? now(7) : 0, 0;
}
// FAKE_GPU_PROCESS: "PID bytes".
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, FakeProcess* processes) {
  const char* text = std::getenv("FAKE_GPU_PROCESS");
  *count =
      text != nullptr && std::sscanf(text, "%u %llu", &processes[0].pid, &processes[0].memory) == 2 ? 1 : 0;
  return 0;
}
int nvmlEventSetCreate(void** set) { return *set = &told, 0; }
int nvmlEventSetFree(void*) { return 0; }
int nvmlDeviceRegisterEvents(void*, unsigned long long, void*) { return 0; }
int nvmlEventSetWait_v2(void*, FakeEvent* event, unsigned) {
  if (now(8) == 0 || told) return 10;  // a time-out
  told = true;
  *event = {nullptr, 8, now(8), 0, 0};
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  const char* text = std::getenv("FAKE_GPU_CAPABILITY");
  return text != nullptr && std::sscanf(text, "%d.%d", major, minor) == 2 ? 0 : 1;
}
}
