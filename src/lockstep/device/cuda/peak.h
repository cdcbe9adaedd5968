// What a GPU could do at best, for MFU and plans: dense matrix products a second, accumulated in fp32.
#pragma once

#include <string>

namespace lockstep::device {

struct PeakFlops {
  double half = 0;  // bf16, or fp16 where there is no bf16
  double fp32 = 0;  // without TF32
};

// From the data sheet for well-known names, otherwise from the architecture, SMs and clock.
PeakFlops peak_flops(const std::string& name, int compute_capability, int sm_count, double clock_hz);

}  // namespace lockstep::device
