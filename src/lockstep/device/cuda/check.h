// Every CUDA call is checked: CUDA_CHECK(cudaFree(p)) throws LS0410 with the call, the error and the device.
//
// An error of an earlier asynchronous call surfaces at a later one, so the message names where it was
// noticed, not always where it began.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::device {

[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call);

}  // namespace lockstep::device

#define CUDA_CHECK(call)                                                                          \
  do {                                                                                            \
    const cudaError_t error_of_call = (call);                                                     \
    if (error_of_call != cudaSuccess) ::lockstep::device::throw_cuda_error(error_of_call, #call); \
  } while (false)
