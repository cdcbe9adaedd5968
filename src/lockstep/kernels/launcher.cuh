// Opens every launcher: names it for profilers, makes the stream's GPU current, and launches checked.
//
//     Launcher run("gelu", launch);
//     run({.blocks = n, .threads = 256}, gelu_kernel<T>, op.x, op.y);
#pragma once

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/check.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

inline int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

struct Grid {
  int64_t blocks = 0;  // none: nothing is launched
  int threads = 256;   // of a team, threadIdx.x
  int teams = 1;       // a block holds this many, threadIdx.y
  int64_t shared_bytes = 0;
};

// Bytes of shared memory that one block may have on the current GPU, what it holds statically included.
inline int64_t most_shared_bytes() {
  int device = 0, bytes = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

class Launcher {
 public:
  Launcher(const char* name, const Launch& launch) : stream_(static_cast<cudaStream_t>(launch.stream)) {
    make_current();
    nvtxRangePushA(name);
  }
  ~Launcher() { nvtxRangePop(); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  cudaStream_t stream() const { return stream_; }

  template <class... Parameters, class... Arguments>
  void operator()(const Grid& grid, void (*kernel)(Parameters...), Arguments&&... arguments) const {
    if (grid.blocks == 0) return;
    LS_ASSERT(grid.blocks > 0 && grid.blocks <= 0x7fffffff);
    if (grid.shared_bytes > kSharedWithoutAsking) {
      CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(grid.shared_bytes)));
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
    config.blockDim = dim3(static_cast<unsigned>(grid.threads), static_cast<unsigned>(grid.teams));
    config.dynamicSmemBytes = static_cast<size_t>(grid.shared_bytes);
    config.stream = stream_;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
    CUDA_CHECK(cudaGetLastError());
  }

  void fill_zero(void* memory, int64_t bytes) const {
    if (bytes > 0) CUDA_CHECK(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream_));
  }

 private:
  // A stream that is being captured may not be asked for its GPU (that ends the capture): there
  // begin_capture() has made it the current one.
  void make_current() const {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (stream_ != nullptr) CUDA_CHECK(cudaStreamIsCapturing(stream_, &capture));
    if (capture != cudaStreamCaptureStatusNone) return;
    int wanted = 0, current = 0;
    CUDA_CHECK(cudaStreamGetDevice(stream_, &wanted));
    CUDA_CHECK(cudaGetDevice(&current));
    if (wanted != current) CUDA_CHECK(cudaSetDevice(wanted));
  }

  static constexpr int64_t kSharedWithoutAsking =
      40 * 1024;  // of 48 KiB, some of which a kernel holds statically
  cudaStream_t stream_;
};

}  // namespace lockstep::kernels
