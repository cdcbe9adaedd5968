// What Muon does with a matrix beside matrix products: passes over fp32 values.
//
// optim/muon.cc puts them together. They are of one parameter each, so that their order of summation is a
// function of its shape alone.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"
#include "lockstep/kernels/optimizer/step_state.h"

namespace lockstep::kernels {

// g = gradient * clip; m = beta m + (1 - beta) g; direction = g + beta (m - g), Nesterov's look ahead.
// Where the step is not applied, m stays and direction is zero.
struct MuonMomentum {
  int64_t count = 0;
  const float* gradient = nullptr;
  void* m = nullptr;  // bf16 is rounded to the nearest, and used before
  device::DType m_type = device::DType::f32;
  float beta = 0.95f;
  float* direction = nullptr;
  const StepState* state = nullptr;
};

// x /= max(|x|, least); |x| is the Frobenius norm: squares are summed in fp64, in runs of kNormalizeRun.
constexpr int64_t kNormalizeRun = 65536;
struct Normalize {
  int64_t count = 0;
  float* x = nullptr;
  double* sums = nullptr;  // one for each run, begun or full
  float least = 1e-7f;
};

// out = by_x x + by_y y, computed in fp32 and rounded once; out may be either of them.
struct Blend {
  device::DType type = device::DType::f32;  // or bf16
  int64_t count = 0;
  const void* x = nullptr;
  const void* y = nullptr;
  float by_x = 1, by_y = 1;
  void* out = nullptr;
};

// p -= lr rate (scale direction + decay p); nothing at all when state->apply is 0.
struct MuonApply {
  int64_t count = 0;
  float* master = nullptr;
  const float* direction = nullptr;
  float rate = 1, scale = 1, weight_decay = 0;
  const StepInputs* inputs = nullptr;
  const StepState* state = nullptr;
};

}  // namespace lockstep::kernels
