#include "lockstep/kernels/matmul_plan.cuh"

#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/check.h"

namespace lockstep::kernels::cuda {
namespace {

void check(cublasStatus_t status, const char* call, const MatmulKey& key = {}) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const auto size = [](int64_t n) { return std::to_string(n); };
  throw base::IoError(413, std::string(call) + " failed for a " + device::name_of(key.in_type) +
                               " product of " + size(key.m) + " x " + size(key.k) + " and " + size(key.k) +
                               " x " + size(key.n) + ": " + cublasLtGetStatusName(status) +
                               "; update the NVIDIA driver, or check the GPU with `nvidia-smi`");
}

cudaDataType_t native_type(device::DType type) {
  switch (type) {
    case device::DType::f32:
      return CUDA_R_32F;
    case device::DType::bf16:
      return CUDA_R_16BF;
    case device::DType::f16:
      return CUDA_R_16F;
    default:
      break;
  }
  LS_ASSERT(false, std::string("no matrix product of ") + device::name_of(type));
  return CUDA_R_32F;
}

template <class T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}

template <class T>
void set(cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(wish, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

// A row-major [rows, columns] matrix.
void describe(cublasLtMatrixLayout_t matrix, device::DType type, int64_t rows, int64_t columns) {
  check(cublasLtMatrixLayoutInit(matrix, native_type(type), static_cast<uint64_t>(columns),
                                 static_cast<uint64_t>(rows), columns),
        "cublasLtMatrixLayoutInit");
}

void describe(MatmulPlan& plan, const MatmulKey& key, const void* bias) {
  const bool tf32 = key.tf32 && key.in_type == device::DType::f32;
  check(cublasLtMatmulDescInit(&plan.product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                               CUDA_R_32F),
        "cublasLtMatmulDescInit");
  set(&plan.product, CUBLASLT_MATMUL_DESC_TRANSA, key.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(&plan.product, CUBLASLT_MATMUL_DESC_TRANSB, key.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) {
    set(&plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(&plan.product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, native_type(key.in_type));
    set(&plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  describe(&plan.b, key.in_type, key.trans_b ? key.n : key.k, key.trans_b ? key.k : key.n);
  describe(&plan.a, key.in_type, key.trans_a ? key.k : key.m, key.trans_a ? key.m : key.k);
  describe(&plan.c, key.out_type, key.m, key.n);
}

bool keeps_sum_whole(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t splits = 1;
  size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                             sizeof(splits), &written),
        "cublasLtMatmulAlgoConfigGetAttribute");
  return splits <= 1;
}

void choose_algorithm(MatmulPlan& plan, cublasLtHandle_t handle, const MatmulKey& key) {
  cublasLtMatmulPreferenceOpaque_t wish{};
  check(cublasLtMatmulPreferenceInit(&wish), "cublasLtMatmulPreferenceInit");
  set(&wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(key.workspace ? kMatmulWorkspace : 0));
  set(&wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  set(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.alignment_b));
  set(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.alignment_a));
  set(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.alignment_c));
  set(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.alignment_c));

  constexpr int kMost = 16;
  cublasLtMatmulHeuristicResult_t found[kMost];
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, &plan.product, &plan.b, &plan.a, &plan.c, &plan.c, &wish,
                                       kMost, found, &count),
        "cublasLtMatmulAlgoGetHeuristic", key);
  for (int i = 0; i < count; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS || !keeps_sum_whole(found[i].algo)) continue;
    plan.algorithm = found[i].algo;
    return;
  }
  check(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", key);
}

}  // namespace

MatmulPlans::MatmulPlans() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }

MatmulPlan MatmulPlans::find(const MatmulKey& key, const void* bias) {
  const std::lock_guard lock(mutex_);
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second;
  MatmulPlan plan;
  describe(plan, key, bias);
  choose_algorithm(plan, handle_, key);
  return plans_.emplace(key, plan).first->second;
}

MatmulPlans& MatmulPlans::of_current_device() {
  struct AllDevices {
    std::mutex mutex;
    std::map<int, std::unique_ptr<MatmulPlans>> plans;
  };
  static AllDevices& all = *new AllDevices;
  int index = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<MatmulPlans>& plans = all.plans[index];
  if (!plans) plans = std::make_unique<MatmulPlans>();
  return *plans;
}

void run_matmul(cublasLtHandle_t handle, MatmulPlan plan, const Gemm& op, const Launch& launch) {
  if (op.bias) set(&plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, op.bias);
  const float alpha = 1, beta = op.beta;
  const bool workspace = launch.workspace_bytes >= kMatmulWorkspace;
  check(cublasLtMatmul(handle, &plan.product, &alpha, op.b, &plan.b, op.a, &plan.a, &beta, op.c, &plan.c,
                       op.c, &plan.c, &plan.algorithm, workspace ? launch.workspace : nullptr,
                       workspace ? static_cast<size_t>(kMatmulWorkspace) : 0,
                       static_cast<cudaStream_t>(launch.stream)),
        "cublasLtMatmul", {.m = op.m, .n = op.n, .k = op.k, .in_type = op.in_type});
}

}  // namespace lockstep::kernels::cuda
