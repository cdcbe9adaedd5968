#include "lockstep/device/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "lockstep/device/device.h"
#include "lockstep/device/plugin.h"

namespace lockstep::device {

std::string product_library() {
  void* plugin = cuda_plugin();
  if (plugin == nullptr) return "";
  const auto version = reinterpret_cast<PluginProducts>(::dlsym(plugin, "lockstep_cuda_products"));
  if (version == nullptr) return "";
  const int number = version();  // 130100
  return fmt::format("cublasLt {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace lockstep::device
