#include "lockstep/kernels/cudnn/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "lockstep/device/libraries.h"

// What this file defines must not be seen by a cuDNN that another library of the process links.
#pragma GCC visibility push(hidden)
#include <cudnn.h>
#pragma GCC visibility pop

// name, parameters, arguments: what cuDNN's frontend and we call.
#define CUDNN_FUNCTIONS(ROW)                                                                              \
  ROW(cudnnCreate, (cudnnHandle_t * handle), (handle))                                                    \
  ROW(cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))                      \
  ROW(cudnnGetStream, (cudnnHandle_t handle, cudaStream_t * stream), (handle, stream))                    \
  ROW(cudnnBackendCreateDescriptor, (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t * made), \
      (type, made))                                                                                       \
  ROW(cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t made), (made))                             \
  ROW(cudnnBackendFinalize, (cudnnBackendDescriptor_t made), (made))                                      \
  ROW(cudnnBackendSetAttribute,                                                                           \
      (cudnnBackendDescriptor_t made, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, \
       int64_t count, const void* values),                                                                \
      (made, name, type, count, values))                                                                  \
  ROW(cudnnBackendGetAttribute,                                                                           \
      (cudnnBackendDescriptor_t const made, cudnnBackendAttributeName_t name,                             \
       cudnnBackendAttributeType_t type, int64_t room, int64_t* count, void* values),                     \
      (made, name, type, room, count, values))                                                            \
  ROW(cudnnBackendExecute,                                                                                \
      (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pointers),           \
      (handle, plan, pointers))

namespace lockstep::kernels::cuda {
namespace {

struct Functions {
#define ROW(name, parameters, arguments) decltype(&::name) name = nullptr;
  CUDNN_FUNCTIONS(ROW)
#undef ROW
  decltype(&::cudnnGetErrorString) cudnnGetErrorString = nullptr;
  decltype(&::cudnnGetLastErrorString) cudnnGetLastErrorString = nullptr;
  decltype(&::cudnnGetVersion) cudnnGetVersion = nullptr;
};

struct Library {
  CudnnState state;
  Functions functions;
};

// The wheels lie beside each other: site/torch/lib, site/nvidia/cudnn/lib.
std::filesystem::path site_folder() {
  const std::string torch = device::torch_folder();
  return torch.empty() ? "" : std::filesystem::path(torch).parent_path();
}

void* open_cudnn(std::string& why_not) {
  const std::filesystem::path site = site_folder();
  if (!site.empty()) {
    // cuDNN opens the run-time compiler by name alone; once it is in the process, it is found.
    static_cast<void>(::dlopen((site / "nvidia/cu13/lib/libnvrtc.so.13").c_str(), RTLD_NOW | RTLD_LOCAL));
    if (void* handle = ::dlopen((site / "nvidia/cudnn/lib/libcudnn.so.9").c_str(), RTLD_NOW | RTLD_LOCAL))
      return handle;
  }
  if (void* handle = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL)) return handle;
  const char* reason = ::dlerror();
  why_not = reason != nullptr ? reason : "libcudnn.so.9 cannot be opened";
  return nullptr;
}

template <class Function>
bool find(void* handle, const char* name, Function* function, std::string& why_not) {
  *function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (*function == nullptr) why_not = fmt::format("this cuDNN lacks {}", name);
  return *function != nullptr;
}

Library load() {
  Library library;
  CudnnState& state = library.state;
  void* handle = open_cudnn(state.why_not);
  if (handle == nullptr) return library;
  Functions& f = library.functions;
#define ROW(name, parameters, arguments) \
  if (!find(handle, #name, &f.name, state.why_not)) return library;
  CUDNN_FUNCTIONS(ROW)
#undef ROW
  if (!find(handle, "cudnnGetErrorString", &f.cudnnGetErrorString, state.why_not)) return library;
  if (!find(handle, "cudnnGetLastErrorString", &f.cudnnGetLastErrorString, state.why_not)) return library;
  if (!find(handle, "cudnnGetVersion", &f.cudnnGetVersion, state.why_not)) return library;
  const size_t version = f.cudnnGetVersion();  // 91900
  state.version = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  state.here = true;
  return library;
}

// Opened once and kept: cuDNN has threads and modules of its own.
const Library& library() {
  static const Library& opened = *new Library(load());
  return opened;
}

}  // namespace

const CudnnState& cudnn_state() { return library().state; }

}  // namespace lockstep::kernels::cuda

extern "C" {

#define ROW(name, parameters, arguments) \
  cudnnStatus_t name parameters { return lockstep::kernels::cuda::library().functions.name arguments; }
CUDNN_FUNCTIONS(ROW)
#undef ROW

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return lockstep::kernels::cuda::library().functions.cudnnGetErrorString(status);
}
void cudnnGetLastErrorString(char* message, size_t room) {
  lockstep::kernels::cuda::library().functions.cudnnGetLastErrorString(message, room);
}
size_t cudnnGetVersion() { return lockstep::kernels::cuda::library().functions.cudnnGetVersion(); }

}  // extern "C"
