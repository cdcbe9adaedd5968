#include "lockstep/device/driver.h"

#include <dlfcn.h>

#include "lockstep/base/signals_blocked.h"
#include "lockstep/device/cuda_facts.h"

namespace lockstep::device {
namespace {

constexpr int kOldestVersion = 13000;    // CUDA 13.0, which kOldestDriver brings
constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

bool Driver::start() {
  const base::SignalsBlocked blocked;                               // it starts threads
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed, as CUDA wants it
  if (library == nullptr) return false;
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  if (!find(library, "cuInit", init) || !find(library, "cuDriverGetVersion", version) ||
      !find(library, "cuDeviceGetCount", count_) || !find(library, "cuDeviceGet", device_) ||
      !find(library, "cuDeviceGetAttribute", attribute_) ||
      !find(library, "cuDevicePrimaryCtxRetain", retain_)) {
    return false;
  }
  int number = 0;
  return version(&number) == 0 && number >= kOldestVersion && init(0) == 0;
}

bool Driver::accepts(int index) const {
  int count = 0;
  if (count_(&count) != 0 || index < 0 || index >= count) return false;
  for (int i = 0; i <= index; ++i) {
    int device = 0, major = 0, minor = 0;
    if (device_(&device, i) != 0 || attribute_(&major, kMajor, device) != 0 ||
        attribute_(&minor, kMinor, device) != 0 || !is_new_enough(major, minor)) {
      return false;
    }
  }
  return true;
}

void Driver::make_context(int index) const {
  int device = 0;
  void* context = nullptr;
  if (device_(&device, index) == 0) static_cast<void>(retain_(&context, device));
}

}  // namespace lockstep::device
