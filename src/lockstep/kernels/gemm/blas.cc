#include "lockstep/kernels/gemm/blas.h"

#include <dlfcn.h>

#include "lockstep/device/libraries.h"

namespace lockstep::kernels {
namespace {

Blas load() {
  constexpr const char* kLibrary = "libtorch_cpu.so";
  void* torch = device::load_library(kLibrary);
  Blas blas;
  blas.sgemm = reinterpret_cast<decltype(blas.sgemm)>(device::find_in_library(torch, kLibrary, "sgemm_"));
  blas.set_threads =
      reinterpret_cast<decltype(blas.set_threads)>(::dlsym(torch, "MKL_Set_Num_Threads_Local"));
  return blas;
}

}  // namespace

const Blas& blas() {
  static const Blas loaded = load();
  return loaded;
}

}  // namespace lockstep::kernels
