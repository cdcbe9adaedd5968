// The plugin's exports: a device, a table of kernels, and the number that says they fit the program.
#include <cublasLt.h>

#include "lockstep/device/plugin.h"

#include "lockstep/base/error.h"
#include "lockstep/base/laps.h"
#include "lockstep/device/cuda/cuda_device.h"
#include "lockstep/kernels/cublas/matmul_plan.h"
#include "lockstep/kernels/cudnn/attention_plan.h"
#include "lockstep/kernels/flash/flash_attention.h"
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
    .adds_own_sums = true,  // products add C last, behind their sums over k
    .attention_engine = lockstep::kernels::cuda::attention_engine,
    .attention_part_engine = lockstep::kernels::cuda::attention_part_engine,
};

}  // namespace

extern "C" {

lockstep::device::Device* lockstep_cuda_open(int index) { return new lockstep::device::CudaDevice(index); }

void lockstep_cuda_load(lockstep::base::Laps* laps) {
  lockstep::kernels::cuda::CudnnAttention::load();
  laps->end("load cuDNN");
  lockstep::kernels::cuda::FlashAttention::load();
  laps->end("load FlashAttention");
}

// What fails here fails again, and is said, where it is needed.
void lockstep_cuda_warm_up(int index, lockstep::base::Laps* laps) {
  if (cudaSetDevice(index) != cudaSuccess) return;
  try {
    lockstep::kernels::cuda::CudnnAttention::start();
    laps->end("start cuDNN");
    lockstep::kernels::cuda::MatmulPlans::of_current_device();
    laps->end("start cuBLASLt");
  } catch (const lockstep::base::Error&) {
  }
}

const lockstep::kernels::Kernels* lockstep_cuda_kernels() { return &kTable; }

int lockstep_cuda_products() { return static_cast<int>(cublasLtGetVersion()); }

int lockstep_cuda_abi() { return lockstep::device::kPluginAbi; }

}  // extern "C"
