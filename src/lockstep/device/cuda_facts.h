// What can be known of NVIDIA GPUs without loading CUDA, and the verdict that follows from it.
//
// read_cuda_facts() asks NVML, opened at run time; judge_cuda() is a pure function of the answer, so
// that every machine a user may have is a row in a test.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/device/device.h"

namespace lockstep::device {

constexpr int kOldestDriver = 580;           // the first that runs CUDA 13
constexpr int kOldestCapability[] = {7, 5};  // Turing: the oldest that CUDA 13 compiles for

bool is_new_enough(int major, int minor);  // compute capability

struct GpuFacts {
  std::string name, uuid;
  int major = 0, minor = 0;  // compute capability
};

struct CudaFacts {
  bool has_nvml = false;                       // libnvidia-ml.so.1 opens and initialises
  bool has_libcuda = false;                    // libcuda.so.1 opens
  bool has_plugin = false;                     // liblockstep_cuda.so lies beside the library
  std::string driver;                          // "580.95.05"
  std::vector<GpuFacts> gpus;                  // in NVML's order
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES, when set
  int on_bus = 0;                              // NVIDIA GPUs on the PCI bus, with a driver or without
  bool has_flash = false;                      // liblockstep_flash.so lies there: set-up compiled it
};

CudaFacts read_cuda_facts();
CudaAvailability judge_cuda(const CudaFacts& facts);

// The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order: indices or (shortened) UUIDs, comma-separated;
// as CUDA reads it, the list ends at the first entry that names no GPU.
std::vector<GpuFacts> visible_gpus(const std::vector<GpuFacts>& gpus,
                                   const std::optional<std::string>& visible);

// Where the plugin would lie: beside the library that holds this function.
std::string plugin_path();

}  // namespace lockstep::device
