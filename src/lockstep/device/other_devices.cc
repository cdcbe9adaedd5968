#include "lockstep/device/other_devices.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::device {

const std::vector<OtherDevice>& other_devices() {
  static const std::vector<OtherDevice> rows = {
      {.name = "rocm",
       .also = {"hip", "amd"},
       .title = "AMD GPUs (ROCm)",
       .compiled = "nothing",
       .has_run = "nothing",
       .why =
           "the kernels are CUDA's, with NVIDIA's tensor-core instructions, cuBLASLt and cuDNN behind them",
       .instead = "set run.device=cpu, or use an NVIDIA GPU"},
      {.name = "xpu",
       .also = {"intel", "sycl"},
       .title = "Intel GPUs (XPU)",
       .compiled = "nothing",
       .has_run = "nothing",
       .why = "there are no SYCL kernels, and PyPI's LibTorch 2.11 has no XPU library",
       .instead = "set run.device=cpu, which uses AVX-512 where the processor has it"},
      {.name = "mps",
       .also = {"metal", "apple"},
       .title = "Apple GPUs (MPS)",
       .compiled = "nothing",
       .has_run = "nothing",
       .why = "the program is for Linux, and Metal exists only on macOS",
       .instead = "run it in a Linux container or virtual machine there with run.device=cpu"},
      {.name = "tpu",
       .also = {"xla"},
       .title = "TPUs",
       .compiled = "nothing",
       .has_run = "submit creates TPU VMs for foreign programs (JAX); none of the trainer",
       .why = "TPUs run what XLA compiles, and the trainer's kernels are not written for it",
       .instead = "start a JAX program there with `lockstep launch --framework jax`, or set run.device=cpu"},
  };
  return rows;
}

const OtherDevice* find_other_device(const std::string& request) {
  const std::string name = request.substr(0, request.find(':'));
  for (const OtherDevice& row : other_devices()) {
    if (row.name == name || std::find(row.also.begin(), row.also.end(), name) != row.also.end()) return &row;
  }
  return nullptr;
}

std::string refusal_of(const OtherDevice& device) {
  return fmt::format(
      "run.device = \"{}\": {} are not supported: {} (compiled for it: {}; has run on it: {}); {}",
      device.name, device.title, device.why, device.compiled, device.has_run, device.instead);
}

}  // namespace lockstep::device
