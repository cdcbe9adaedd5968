#include "lockstep/kernels/cublas/matmul_plan.h"

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/check.h"
#include "lockstep/kernels/cublas/matmul_choice.h"

namespace lockstep::kernels::cuda {
namespace {

void check(cublasStatus_t status, const char* call, const MatmulKey& key = {}) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const auto size = [](int64_t n) { return std::to_string(n); };
  throw base::IoError(413, std::string(call) + " failed for a " +
                               (key.fp8 ? "fp8" : device::name_of(key.in_type)) + " product of " +
                               size(key.m) + " x " + size(key.k) + " and " + size(key.k) + " x " +
                               size(key.n) + ": " + cublasLtGetStatusName(status) +
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
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

cudaDataType_t native_type(Fp8 format) { return format == Fp8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }

int32_t native_mode(Fp8Scaling scaling) {
  switch (scaling) {
    case Fp8Scaling::row:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case Fp8Scaling::block:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Fp8Scaling::square:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
}

// A row-major [rows, columns] matrix, its rows `row` values apart.
void describe(cublasLtMatrixLayout_t matrix, cudaDataType_t type, int64_t rows, int64_t columns,
              int64_t row) {
  check(cublasLtMatrixLayoutInit(matrix, type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                                 row),
        "cublasLtMatrixLayoutInit");
}

// To cuBLASLt B is the first operand.
void describe_fp8(MatmulPlan& plan, const MatmulKey& key) {
  set(&plan.product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(key.fast_sum));
  set(&plan.product, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, native_mode(key.b_scaling));
  set(&plan.product, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, native_mode(key.a_scaling));
}

// The matrix beside C that an epilogue writes or reads; null when there is none.
const void* beside(const Gemm& op) { return op.before_gelu ? op.before_gelu : op.gelu_at; }

void describe(MatmulPlan& plan, const MatmulKey& key, const Gemm& op) {
  const bool tf32 = key.tf32 && key.in_type == device::DType::f32;
  check(cublasLtMatmulDescInit(&plan.product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                               CUDA_R_32F),
        "cublasLtMatmulDescInit");
  set(&plan.product, CUBLASLT_MATMUL_DESC_TRANSA, key.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(&plan.product, CUBLASLT_MATMUL_DESC_TRANSB, key.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) {
    set(&plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE,
        key.gelu ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS);
    set(&plan.product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, native_type(key.out_type));
    set(&plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, op.bias);
  }
  if (key.gelu_slope) set(&plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
  if (key.gelu || key.gelu_slope) {
    set(&plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, beside(op));
    set(&plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.n);
  }
  if (key.fp8) describe_fp8(plan, key);
  describe(&plan.b, key.fp8 ? native_type(key.b_format) : native_type(key.in_type),
           key.trans_b ? key.n : key.k, key.trans_b ? key.k : key.n,
           key.b_row > 0 ? key.b_row : (key.trans_b ? key.k : key.n));
  describe(&plan.a, key.fp8 ? native_type(key.a_format) : native_type(key.in_type),
           key.trans_a ? key.k : key.m, key.trans_a ? key.m : key.k, key.a_row);
  describe(&plan.c, native_type(key.out_type), key.m, key.n, key.c_row > 0 ? key.c_row : key.n);
}

// Whether the sum over k may be cut: the result has too few tiles to keep a GPU busy, and k is long.
bool may_split(const MatmulKey& key) {
  constexpr int64_t kTile = 128, kFewTiles = 64, kLong = 4096;
  const int64_t tiles = ((key.m + kTile - 1) / kTile) * ((key.n + kTile - 1) / kTile);
  return key.workspace && tiles <= kFewTiles && key.k >= kLong;
}

bool is_allowed(const cublasLtMatmulAlgo_t& algorithm, bool split) {
  int32_t splits = 1;
  size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                             sizeof(splits), &written),
        "cublasLtMatmulAlgoConfigGetAttribute");
  return splits <= 1 || split;
}

// What cuBLASLt proposes for at most so many bytes of workspace, the best guess first. With `split`, the sum
// over k may be cut.
std::vector<MatmulCandidate> proposals(MatmulPlan& plan, cublasLtHandle_t handle, const MatmulKey& key,
                                       int64_t workspace, bool split) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace));
  // Parts of a split sum go to the workspace in fp32 and are added in order.
  set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE));
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.alignment_b));
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.alignment_a));
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.alignment_c));
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.alignment_c));

  constexpr int kMost = 16;
  cublasLtMatmulHeuristicResult_t found[kMost];
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, &plan.product, &plan.b, &plan.a, &plan.c, &plan.c, &preference, kMost, found, &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic", key);
  std::vector<MatmulCandidate> allowed;
  for (int i = 0; i < count; ++i) {
    if (found[i].state == CUBLAS_STATUS_SUCCESS && is_allowed(found[i].algo, split))
      allowed.push_back({found[i].algo, found[i].workspaceSize});
  }
  return allowed;
}

// For some products with scales inside the sum (fp8 by block) there are only ways that split it. And a way
// that uses a workspace clears some of it first, which costs a small product a few percent: ways that do
// without are worth a look.
std::vector<MatmulCandidate> candidates_for(MatmulPlan& plan, cublasLtHandle_t handle, const MatmulKey& key) {
  const int64_t workspace = key.workspace ? kMatmulWorkspace : 0;
  std::vector<MatmulCandidate> all = proposals(plan, handle, key, workspace, may_split(key));
  if (all.empty() && key.workspace) all = proposals(plan, handle, key, workspace, true);
  if (all.empty()) check(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", key);
  if (!key.workspace) return all;
  for (const MatmulCandidate& one : proposals(plan, handle, key, 0, may_split(key))) all.push_back(one);
  return all;
}

std::string gpu_name() {
  int index = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return std::string(properties.name) + " cublasLt " + std::to_string(cublasLtGetVersion());
}

}  // namespace

std::string MatmulKey::text() const {
  std::string text;
  for (const int64_t part :
       {m, n, k, a_row, static_cast<int64_t>(in_type), static_cast<int64_t>(out_type), int64_t{trans_a},
        int64_t{trans_b}, int64_t{tf32}, int64_t{add_to_c}, int64_t{bias}, int64_t{gelu}, int64_t{gelu_slope},
        int64_t{workspace}, int64_t{alignment_a}, int64_t{alignment_b}, int64_t{alignment_c}}) {
    text += (text.empty() ? "" : ",") + std::to_string(part);
  }
  if (b_row > 0 || c_row > 0) text += ",rows," + std::to_string(b_row) + "," + std::to_string(c_row);
  if (!fp8) return text;
  for (const int part : {static_cast<int>(a_format), static_cast<int>(b_format), static_cast<int>(a_scaling),
                         static_cast<int>(b_scaling), int{fast_sum}}) {
    text += "," + std::to_string(part);
  }
  return text;
}

MatmulPlans::MatmulPlans() : memory_(gpu_name()) { check(cublasLtCreate(&handle_), "cublasLtCreate"); }

MatmulPlan MatmulPlans::find(const MatmulKey& key, const Gemm& op, const Launch& launch,
                             const MatmulScales& scales) {
  const std::lock_guard lock(mutex_);
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second;
  MatmulPlan plan;
  describe(plan, key, op);
  if (key.fp8) set_scales(plan, scales);
  const std::vector<MatmulCandidate> candidates = candidates_for(plan, handle_, key);
  plan.how = candidates[choose(handle_, plan, candidates, key, op, launch, memory_)];
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

void set_scales(MatmulPlan& plan, const MatmulScales& scales) {
  set(&plan.product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.b);
  set(&plan.product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.a);
}

cublasStatus_t try_matmul(cublasLtHandle_t handle, MatmulPlan plan, const Gemm& op, const Launch& launch) {
  if (op.bias) set(&plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, op.bias);
  if (beside(op)) set(&plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, beside(op));
  const float alpha = op.alpha, beta = op.beta;
  return cublasLtMatmul(handle, &plan.product, &alpha, op.b, &plan.b, op.a, &plan.a, &beta, op.c, &plan.c,
                        op.c, &plan.c, &plan.how.algorithm,
                        plan.how.workspace > 0 ? launch.workspace : nullptr, plan.how.workspace,
                        static_cast<cudaStream_t>(launch.stream));
}

void run_matmul(cublasLtHandle_t handle, MatmulPlan plan, const Gemm& op, const Launch& launch) {
  check(try_matmul(handle, plan, op, launch), "cublasLtMatmul",
        {.m = op.m, .n = op.n, .k = op.k, .in_type = op.in_type});
}

}  // namespace lockstep::kernels::cuda
