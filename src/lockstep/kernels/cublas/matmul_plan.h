// How cuBLASLt computes a matrix product: asked for once, measured once, and remembered.
//
// The bits are those of cuBLASLt's first choice, a function of sizes, types, alignment and whether there is
// a workspace, so they are the same at every step and on every rank of the same kind of GPU. Of its other
// candidates the fastest is taken that gives the very same bits (matmul_choice.h), so measuring decides
// about speed alone. The sum over k is split only where the result is so small that most of a GPU would
// stand idle; the parts are then added in order, never by atomics.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <mutex>
#include <string>

#include "lockstep/kernels/fp8/fp8.h"
#include "lockstep/kernels/gemm/gemm.h"
#include "lockstep/kernels/gemm/matmul_memory.h"

namespace lockstep::kernels::cuda {

constexpr int64_t kMatmulWorkspace = 32 << 20;  // what NVIDIA recommends from Hopper on

// Everything that the choice depends on. Row-major, as Gemm names it.
struct MatmulKey {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0;             // values between the beginnings of A's stored rows
  int64_t b_row = 0, c_row = 0;  // of B's and C's; 0: they lie side by side
  device::DType in_type{}, out_type{};
  bool trans_a = false, trans_b = false, tf32 = false;
  bool add_to_c = false;                                     // beta = 1
  bool bias = false;                                         // added by the product's own epilogue
  bool gelu = false;                                         // and gelu behind the bias, kept apart before
  bool gelu_slope = false;                                   // the result times gelu's slope elsewhere
  bool workspace = false;                                    // kMatmulWorkspace bytes, or none
  int alignment_a = 16, alignment_b = 16, alignment_c = 16;  // bytes, at most 16
  // fp8 operands, which in_type says nothing of.
  bool fp8 = false, fast_sum = false;
  Fp8 a_format{}, b_format{};
  Fp8Scaling a_scaling{}, b_scaling{};
  auto operator<=>(const MatmulKey&) const = default;
  std::string text() const;  // for the cache on disk
};

// Of fp8 operands, in device memory.
struct MatmulScales {
  const float* a = nullptr;
  const float* b = nullptr;
};

// One of cuBLASLt's ways, and the workspace that it wants.
struct MatmulCandidate {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
};

// cuBLASLt's descriptions, which are plain data. Column-major, as cuBLASLt sees memory, a row-major matrix
// is its own transpose; so C^T = B^T A^T is what is computed, with B first.
struct MatmulPlan {
  cublasLtMatmulDescOpaque_t product{};
  cublasLtMatrixLayoutOpaque_t b{}, a{}, c{};
  MatmulCandidate how{};
};

// The handle and the plans of one GPU; may be used from any thread.
class MatmulPlans {
 public:
  MatmulPlans();
  // The plan for `op`, which is run a few times to find it when it is the first of its kind.
  MatmulPlan find(const MatmulKey& key, const Gemm& op, const Launch& launch,
                  const MatmulScales& scales = {});
  cublasLtHandle_t handle() const { return handle_; }

  // Of the current GPU. Kept until the process ends: the driver may be gone before destructors run.
  static MatmulPlans& of_current_device();

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;  // of all below
  std::map<MatmulKey, MatmulPlan> plans_;
  MatmulMemory memory_;
};

// Where this product's scales are: the plan that find() gives knows only those that it was found with.
void set_scales(MatmulPlan& plan, const MatmulScales& scales);

// `plan` is the caller's own copy, so that several threads may run the same product at once.
cublasStatus_t try_matmul(cublasLtHandle_t handle, MatmulPlan plan, const Gemm& op, const Launch& launch);
void run_matmul(cublasLtHandle_t handle, MatmulPlan plan, const Gemm& op, const Launch& launch);

}  // namespace lockstep::kernels::cuda
