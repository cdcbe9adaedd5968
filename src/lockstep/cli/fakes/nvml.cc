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

}  // namespace

extern "C" {

int nvmlInit_v2() { return std::getenv("FAKE_GPU") != nullptr ? 0 : 1; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return copy(text, size, "FAKE_GPU_DRIVER"); }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** handle) { return *handle = nullptr, 0; }
int nvmlDeviceGetName(void*, char* text, unsigned size) { return copy(text, size, "FAKE_GPU"); }
int nvmlDeviceGetUUID(void*, char* text, unsigned size) { return std::snprintf(text, size, "GPU-0"), 0; }
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  const char* text = std::getenv("FAKE_GPU_CAPABILITY");
  return text != nullptr && std::sscanf(text, "%d.%d", major, minor) == 2 ? 0 : 1;
}
}
