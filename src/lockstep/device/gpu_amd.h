// How every AMD GPU of this machine is doing at this moment, from the files of its kernel driver (amdgpu, in
// /sys/class/drm and /sys/class/kfd): what rocm-smi shows, without it. Where the driver does not tell a
// value, there is none.
//
//     for (const GpuNow& gpu : amd_gpus_now()) ...   // GPU 0, 1, ... in the order of their cards
#pragma once

#include <string>
#include <vector>

#include "lockstep/device/gpu_now.h"

namespace lockstep::device {

// `first`: the number of the first one, behind GPUs of other makers.
std::vector<GpuNow> amd_gpus_now(int first = 0, const std::string& root = "/sys/class");

// Why the clock is held back, from the driver's table of metrics (1.3, which names reasons alike for every
// GPU; newer tables have none, and then nothing is known).
std::vector<std::string> amd_throttle_reasons(const std::string& gpu_metrics);

}  // namespace lockstep::device
