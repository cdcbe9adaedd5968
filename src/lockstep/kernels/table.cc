#include "lockstep/kernels/table.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/device/cpu_features.h"
#include "lockstep/device/plugin.h"
#include "lockstep/kernels/gemm/blas.h"
#include "lockstep/kernels/levels.h"

namespace lockstep::kernels {

namespace {

const Kernels& cpu_kernels() {
  static_cast<void>(blas());  // what is wrong with it is said here, not in the middle of a step
#if defined(__x86_64__)
  const device::CpuLevel level = device::cpu_level();
  if (level == device::CpuLevel::v4) return cpu_v4::table();
  if (level == device::CpuLevel::v3) return cpu_v3::table();
  throw base::ConfigError(405, fmt::format("this processor is {}, but x86-64-v3 (AVX2 and FMA) is needed: "
                                           "use a machine from 2015 or later, or a GPU",
                                           device::name_of(level)));
#else
  return cpu_generic::table();
#endif
}

const Kernels& cuda_kernels() {
  void* plugin = device::cuda_plugin();
  LS_ASSERT(plugin != nullptr, "open a CUDA device before asking for its kernels");
  const auto get = reinterpret_cast<device::PluginKernels>(dlsym(plugin, "lockstep_cuda_kernels"));
  if (get == nullptr) {
    throw base::ConfigError(
        404, fmt::format(
                 "{} does not export lockstep_cuda_kernels: install library and plugin from the same build",
                 device::kPluginFile));
  }
  return *get();
}

}  // namespace

const Kernels& kernels_for(device::Kind kind) {
  return kind == device::Kind::cuda ? cuda_kernels() : cpu_kernels();
}

}  // namespace lockstep::kernels
