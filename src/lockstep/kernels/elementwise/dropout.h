// Dropout whose mask is a function of (seed, step, slice, site, element): nothing is saved, the
// backward pass and any recomputation draw the same mask, and so does any rank that owns the slice.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"
#include "lockstep/kernels/optimizer/step_state.h"

namespace lockstep::kernels {

struct Dropout {
  device::DType type = device::DType::f32;
  int64_t count = 0;
  int64_t first = 0;  // the number of element 0 in the unsplit tensor: any piece draws the same mask
  const void* x = nullptr;
  void* y = nullptr;  // may be x; y = keep ? x / (1 - rate) : 0
  float rate = 0;
  uint32_t slice = 0, site = 0;
  const StepInputs* inputs = nullptr;
  // Of columns that are a part of wider rows: `width` of them lie side by side here, and `row` values from
  // the beginning of one row to that of the next in the unsplit tensor. 0: flat.
  int64_t width = 0, row = 0;
};

}  // namespace lockstep::kernels
