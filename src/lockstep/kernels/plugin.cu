// The plugin's exports: a device, a table of kernels, and the number that says they fit the program.
#include <cublasLt.h>

#include "lockstep/device/plugin.h"

#include "lockstep/device/cuda/cuda_device.h"
#include "lockstep/kernels/table.cuh"

namespace {

constexpr lockstep::kernels::Kernels kTable = {
#define ROW(name, Arguments) .name = lockstep::kernels::cuda::name,
    LOCKSTEP_KERNELS(ROW)
#undef ROW
        .gemm_workspace = lockstep::kernels::cuda::gemm_workspace,
    .fp8_gemm_workspace = lockstep::kernels::cuda::fp8_gemm_workspace,
    .attention_workspace = lockstep::kernels::cuda::attention_workspace,
    .attention_part_workspace = lockstep::kernels::cuda::attention_part_workspace,
    .embedding_workspace = lockstep::kernels::cuda::embedding_workspace,
    .attention_engine = lockstep::kernels::cuda::attention_engine,
};

}  // namespace

extern "C" {

lockstep::device::Device* lockstep_cuda_open(int index) { return new lockstep::device::CudaDevice(index); }

const lockstep::kernels::Kernels* lockstep_cuda_kernels() { return &kTable; }

int lockstep_cuda_products() { return static_cast<int>(cublasLtGetVersion()); }

int lockstep_cuda_abi() { return lockstep::device::kPluginAbi; }

}  // extern "C"
