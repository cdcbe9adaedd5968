// Matrix product: C = alpha op(A) op(B) + beta C (+ bias). Row-major, fp32 accumulation, rounded once.
//
// With beta = 1 and an fp32 C it is the fold of the numeric contract: the product of one slice is
// added to the sum of the slices before it. The order of that product's own sum is a function of the shape.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  device::DType in_type = device::DType::f32;   // of A, B and bias
  device::DType out_type = device::DType::f32;  // of C
  const void* a = nullptr;                      // [m, k], or [k, m] with trans_a
  const void* b = nullptr;                      // [k, n], or [n, k] with trans_b
  void* c = nullptr;                            // [m, n]
  bool trans_a = false, trans_b = false;
  int64_t a_row = 0;  // values from the beginning of a stored row of A to that of the next; 0: side by side
  int64_t b_row = 0, c_row = 0;  // the same of B and C; of C only without a bias and without gelu
  float alpha = 1;
  float beta = 0;              // 0 or 1
  const void* bias = nullptr;  // [n], added to every row; only with beta = 0
  // [m, n] in C's type, or null. Given: it gets the result, and C gets gelu of the result; only with beta =
  // 0.
  void* before_gelu = nullptr;
  // [m, n] in C's type, or null. Given: C gets the result times gelu's slope at these values, which is gelu's
  // backward pass; only with beta = 0 and without a bias. Not C itself.
  const void* gelu_at = nullptr;

  int64_t row_of_a() const { return a_row > 0 ? a_row : trans_a ? m : k; }
  int64_t row_of_b() const { return b_row > 0 ? b_row : trans_b ? k : n; }
  int64_t row_of_c() const { return c_row > 0 ? c_row : n; }
};

}  // namespace lockstep::kernels
