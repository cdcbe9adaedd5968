// cuBLASLt's choice for a matrix product, asked for once and remembered.
//
// The choice is a function of sizes, types, alignment and whether there is a workspace, so the same
// product takes the same algorithm at every step and on every rank of the same kind of GPU. Algorithms
// that split the sum over k are never taken.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <mutex>

#include "lockstep/kernels/gemm.h"

namespace lockstep::kernels::cuda {

constexpr int64_t kMatmulWorkspace = 32 << 20;  // what NVIDIA recommends from Hopper on

// Everything that the choice depends on. Row-major, as Gemm names it.
struct MatmulKey {
  int64_t m = 0, n = 0, k = 0;
  device::DType in_type{}, out_type{};
  bool trans_a = false, trans_b = false, tf32 = false;
  bool add_to_c = false;                                     // beta = 1
  bool bias = false;                                         // added by the product's own epilogue
  bool workspace = false;                                    // kMatmulWorkspace bytes, or none
  int alignment_a = 16, alignment_b = 16, alignment_c = 16;  // bytes, at most 16
  auto operator<=>(const MatmulKey&) const = default;
};

// cuBLASLt's descriptions, which are plain data. Column-major, as cuBLASLt sees memory, a row-major matrix
// is its own transpose; so C^T = B^T A^T is what is computed, with B first.
struct MatmulPlan {
  cublasLtMatmulDescOpaque_t product{};
  cublasLtMatrixLayoutOpaque_t b{}, a{}, c{};
  cublasLtMatmulAlgo_t algorithm{};
};

// The handle and the plans of one GPU; may be used from any thread.
class MatmulPlans {
 public:
  MatmulPlans();
  MatmulPlan find(const MatmulKey& key, const void* bias);
  cublasLtHandle_t handle() const { return handle_; }

  // Of the current GPU. Kept until the process ends: the driver may be gone before destructors run.
  static MatmulPlans& of_current_device();

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;  // of plans_
  std::map<MatmulKey, MatmulPlan> plans_;
};

// `plan` is the caller's own copy, so that several threads may run the same product at once.
void run_matmul(cublasLtHandle_t handle, MatmulPlan plan, const Gemm& op, const Launch& launch);

}  // namespace lockstep::kernels::cuda
