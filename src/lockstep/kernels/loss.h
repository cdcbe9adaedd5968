// Softmax cross-entropy, fused and in place: logits become their own gradient.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"
#include "lockstep/kernels/step_state.h"

namespace lockstep::kernels {

constexpr int32_t kIgnoredLabel = -1;

struct CrossEntropy {
  device::DType type = device::DType::f32;
  int64_t rows = 0, vocab = 0;
  void* logits = nullptr;           // [rows, vocab]; with `gradient`, d loss / d logits afterwards
  const int32_t* labels = nullptr;  // [rows]; kIgnoredLabel counts for nothing
  float* losses = nullptr;          // [rows]: -log p(label), 0 where ignored
  bool gradient = false;
  const StepInputs* inputs = nullptr;  // the gradient is scaled by loss_scale / valid_tokens
  const StepState* state = nullptr;
};

// Sum of a slice's token losses in fp64, in row order within row_parts parts, then over parts.
struct LossSum {
  int64_t rows = 0;
  const float* losses = nullptr;
  double* sum = nullptr;  // one value
};

}  // namespace lockstep::kernels
