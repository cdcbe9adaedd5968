// LayerNorm and RMSNorm with the residual addition fused in.
//
//     sum  = round(residual + x)            (rounded to the edge type before it is normalised)
//     y    = (sum - mean) * rstd * weight + bias
//
// Without `residual`, `sum` is x itself and is not written. RMSNorm has mean 0 and no bias.
// The weight gradient is left in row_parts(rows) partial sums, so that backward_input and
// backward_weight can run apart; norm_weight_backward folds them in part order.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

enum class NormKind : uint8_t { layer, rms };

struct NormForward {
  NormKind kind = NormKind::layer;
  device::DType type = device::DType::f32;  // of x, residual, sum, y, weight, bias
  int64_t rows = 0, width = 0;
  float epsilon = 1e-5f;
  const void* x = nullptr;         // [rows, width]
  const void* residual = nullptr;  // [rows, width] or null
  void* sum = nullptr;             // [rows, width], written when residual is given
  const void* weight = nullptr;    // [width]
  const void* bias = nullptr;      // [width]; null for rms
  void* y = nullptr;               // [rows, width]
  float* mean = nullptr;           // [rows]; null for rms
  float* rstd = nullptr;           // [rows]
  float weight_offset = 0;         // added to every weight: 1 where they are kept around zero
};

struct NormBackward {
  NormKind kind = NormKind::layer;
  device::DType type = device::DType::f32;
  int64_t rows = 0, width = 0;
  const void* dy = nullptr;   // [rows, width]
  const void* sum = nullptr;  // [rows, width]: what was normalised
  const void* weight = nullptr;
  const float* mean = nullptr;  // null for rms
  const float* rstd = nullptr;
  const void* dresidual = nullptr;   // [rows, width] or null: gradient that reaches `sum` from elsewhere
  void* dsum = nullptr;              // [rows, width]: gradient of `sum`; may be the same memory as dresidual
  float* partial_dweight = nullptr;  // [row_parts(rows), width]
  float* partial_dbias = nullptr;    // the same; null for rms
  float weight_offset = 0;           // as forward
};

struct NormWeightBackward {
  int64_t parts = 0, width = 0;
  const float* partial = nullptr;       // [parts, width]
  float* gradient = nullptr;            // [width]
  const float* partial_bias = nullptr;  // the same for the bias; null: there is none
  float* bias_gradient = nullptr;
  bool accumulate = false;  // add to the gradients instead of writing them
};

// Sum of dy over rows: the gradient of a linear layer's bias. Folded in row_parts(rows) parts.
struct BiasBackward {
  device::DType type = device::DType::f32;
  int64_t rows = 0, width = 0;
  const void* dy = nullptr;   // [rows, width]
  float* gradient = nullptr;  // [width]
  bool accumulate = false;
};
inline int64_t bias_backward_workspace(int64_t rows, int64_t width) { return row_parts(rows) * width * 4; }

}  // namespace lockstep::kernels
