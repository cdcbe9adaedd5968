// What the CUDA plugin (liblockstep_cuda.so) exports: C names, looked up by dlsym.
//
// The plugin lies beside liblockstep.so and is built with it. The library refuses a plugin whose
// lockstep_cuda_abi() is not kPluginAbi: raise it whenever Device, Kernels or an argument struct changes.
#pragma once

namespace lockstep::base {
class Laps;
}
namespace lockstep::kernels {
struct Kernels;
}

namespace lockstep::device {

class Device;

constexpr int kPluginAbi = 13;
constexpr const char* kPluginFile = "liblockstep_cuda.so";

using PluginAbi = int (*)();
using PluginOpen = Device* (*)(int index);  // ownership passes to the caller; throws base::Error
// Ahead of open(), on another thread: libraries that are opened at run time; then, when the GPU has a
// context, what they do once. Neither throws.
using PluginLoad = void (*)(base::Laps* laps);
using PluginWarmUp = void (*)(int index, base::Laps* laps);
using PluginKernels = const kernels::Kernels* (*)();
using PluginProducts = int (*)();  // cuBLASLt's version: 130100

}  // namespace lockstep::device

extern "C" {
int lockstep_cuda_abi();
lockstep::device::Device* lockstep_cuda_open(int index);
void lockstep_cuda_load(lockstep::base::Laps* laps);
void lockstep_cuda_warm_up(int index, lockstep::base::Laps* laps);
const lockstep::kernels::Kernels* lockstep_cuda_kernels();
int lockstep_cuda_products();
}
