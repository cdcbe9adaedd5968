#include "lockstep/device/cuda/check.h"

#include <fmt/format.h>

#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::device {

void throw_cuda_error(cudaError_t error, const char* call) {
  int index = -1;
  if (cudaGetDevice(&index) != cudaSuccess) index = -1;
  cudaGetLastError();  // an error that the device survives must not show up again in the next launch
  const std::string_view text = call;
  const std::string_view name = text.substr(0, text.find('('));
  throw base::IoError(
      410,
      fmt::format("{} failed on cuda:{}: {} ({}); check `nvidia-smi` and the kernel log for a device fault",
                  name, index, cudaGetErrorName(error), cudaGetErrorString(error)));
}

}  // namespace lockstep::device
