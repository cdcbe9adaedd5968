// RMSNorm of queries and keys inside packed rows, between the projection and the rotation: over each head for
// itself (Qwen 3, Gemma 3), or over all heads of a token at once (OLMo 2). Values pass by.
//
// A row is [q_runs * q_width | k_runs * k_width | rest]. A run is normalised by itself, and every run of q
// has the same weights, as has every run of k. The weight gradient is left in row_parts(rows) partial sums,
// which norm_weight_backward folds.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

struct HeadRuns {
  device::DType type = device::DType::f32;
  int64_t rows = 0;
  int64_t q_runs = 0, q_width = 0;
  int64_t k_runs = 0, k_width = 0;
  int64_t rest = 0;         // elements of a row that are not normalised
  float weight_offset = 0;  // added to every weight
  // A run here may be a part of one that ranks share: what it is divided by for the mean; 0: its own width.
  int64_t q_whole = 0, k_whole = 0;
  const void* q_weight = nullptr;  // [q_width]
  const void* k_weight = nullptr;  // [k_width]

  int64_t runs() const { return q_runs + k_runs; }
  int64_t row_width() const { return q_runs * q_width + k_runs * k_width + rest; }
};

struct HeadNorm {
  HeadRuns runs;
  float epsilon = 1e-6f;
  const void* x = nullptr;  // [rows, row_width]
  void* y = nullptr;        // the same, not x
  float* rstd = nullptr;    // [rows, runs]
  // Given, of one run of q and one of k: the sums of squares of the whole runs, [rows, 2].
  const float* squares = nullptr;
};

struct HeadNormBackward {
  HeadRuns runs;
  const void* dy = nullptr;  // [rows, row_width]
  const void* x = nullptr;
  const float* rstd = nullptr;
  void* dx = nullptr;          // [rows, row_width]
  float* partial_q = nullptr;  // [row_parts(rows), q_width]
  float* partial_k = nullptr;  // [row_parts(rows), k_width]
  // Given, [rows, 2]: gets the gradient of the sums of squares, and dx then lacks what goes through them.
  float* dsquares = nullptr;
};

// The sums of squares of one run of q and one of k, so that ranks with parts of them can add theirs up.
struct HeadSquares {
  HeadRuns runs;
  const void* x = nullptr;   // [rows, row_width]
  float* squares = nullptr;  // [rows, 2]
};

struct HeadSquaresBackward {
  HeadRuns runs;
  const void* x = nullptr;
  const float* dsquares = nullptr;  // [rows, 2]
  const void* dpassed = nullptr;    // [rows, row_width]: what reaches x from elsewhere
  void* dx = nullptr;               // [rows, row_width]; may be dpassed
};

}  // namespace lockstep::kernels
