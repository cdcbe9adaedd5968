// What this device can do at best, measured: a large square product, and a copy.
#pragma once

#include "lockstep/device/device.h"
#include "lockstep/program/program.h"

namespace lockstep::run {

struct Ceilings {
  double product_tflops = 0, copy_gb_s = 0;  // 0: not known
  double fp8_tflops = 0;                     // 0: not measured
  // What the instruction would take if its products ran at the one and everything else at the other.
  double milliseconds(const program::Instruction& instruction) const;
};

// Takes some memory for a moment (2 GiB on a GPU); device::OutOfMemory when that is not there. `fp8`: a
// product of that too.
Ceilings measure_ceilings(device::Device& device, device::DType compute, bool tf32, bool fp8 = false);

}  // namespace lockstep::run
