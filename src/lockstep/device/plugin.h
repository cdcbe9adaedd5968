// What the CUDA plugin (liblockstep_cuda.so) exports: four C names, looked up by dlsym.
//
// The plugin lies beside liblockstep.so and is built with it. The library refuses a plugin whose
// lockstep_cuda_abi() is not kPluginAbi: raise it whenever Device, Kernels or an argument struct changes.
#pragma once

namespace lockstep::kernels {
struct Kernels;
}

namespace lockstep::device {

class Device;

constexpr int kPluginAbi = 10;
constexpr const char* kPluginFile = "liblockstep_cuda.so";

using PluginAbi = int (*)();
using PluginOpen = Device* (*)(int index);  // ownership passes to the caller; throws base::Error
using PluginKernels = const kernels::Kernels* (*)();
using PluginProducts = int (*)();  // cuBLASLt's version: 130100

}  // namespace lockstep::device

extern "C" {
int lockstep_cuda_abi();
lockstep::device::Device* lockstep_cuda_open(int index);
const lockstep::kernels::Kernels* lockstep_cuda_kernels();
int lockstep_cuda_products();
}
