// MKL's single-precision product, as LibTorch's CPU library exports it, for row-major matrices.
//
// MKL cuts a threaded product by the number of threads, which changes bits at ragged edges. So kernels
// cut by shape, share the pieces among threads themselves, and keep MKL at one thread inside each. It
// also peels by address for some tiny shapes: matrices must begin on a multiple of 64 bytes in every layout.
#pragma once

#include <cstdint>

#include "lockstep/kernels/gemm/blas.h"
#include "lockstep/kernels/vector_math.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

struct Matrix {
  const float* data = nullptr;
  int64_t stride = 0;  // elements from one row to the next
  bool transposed = false;
};

// c [m, n] = alpha * a [m, k] * b [k, n] + beta * c, on the calling thread.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  float alpha = 1, beta = 0;
  Matrix a, b;  // `transposed`: stored as [k, m] and [n, k]
  float* c = nullptr;
  int64_t c_stride = 0;
};

// BLAS is column-major: to it a row-major matrix is its transpose, and c^T = b^T a^T.
LS_INLINE void multiply(const Product& product) {
  const int m = static_cast<int>(product.m), n = static_cast<int>(product.n), k = static_cast<int>(product.k);
  const int a_stride = static_cast<int>(product.a.stride), b_stride = static_cast<int>(product.b.stride);
  const int c_stride = static_cast<int>(product.c_stride);
  blas().sgemm(product.b.transposed ? "T" : "N", product.a.transposed ? "T" : "N", &n, &m, &k, &product.alpha,
               product.b.data, &b_stride, product.a.data, &a_stride, &product.beta, product.c, &c_stride);
}

// Keeps MKL at one thread on the calling thread for as long as it lives.
class OneThread {
 public:
  LS_INLINE OneThread() : before_(blas().set_threads ? blas().set_threads(1) : 0) {}
  LS_INLINE ~OneThread() {
    if (blas().set_threads) blas().set_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
