// The product of LibTorch's CPU library, by address: that library is loaded when CPU kernels are first asked
// for, so that whoever computes on a GPU, or not at all, does not wait for it.
#pragma once

namespace lockstep::kernels {

struct Blas {
  void (*sgemm)(const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k,
                const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                const float* beta, float* c, const int* ldc) = nullptr;
  // Of the calling thread; returns what was set before. Null where LibTorch is built on another BLAS than MKL
  // (ARM), which then is at one thread inside a parallel region.
  int (*set_threads)(int threads) = nullptr;
};
const Blas& blas();  // ConfigError 406, the first time, where there is no LibTorch

}  // namespace lockstep::kernels
