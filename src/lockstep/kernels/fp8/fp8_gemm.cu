// Products of fp8 copies: cuBLASLt, by the same plans as all other products.
#include "lockstep/base/error.h"
#include "lockstep/kernels/cublas/matmul_plan.h"
#include "lockstep/kernels/fp8/fp8.h"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"
#include "lockstep/kernels/vector.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// cuBLASLt adds a bias itself only where a matrix has one scale.
__global__ void add_bias_kernel(int64_t count, int64_t width, const Bf16* bias, Bf16* c) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) c[i] = from_float<Bf16>(to_float(c[i]) + to_float(bias[i % width]));
}

// With scales inside the sum, cuBLASLt must take it out of the matrix units anyway, and refuses to be told
// else.
bool knows_fast_sums(Fp8Scaling scaling) {
  return scaling == Fp8Scaling::tensor || scaling == Fp8Scaling::row;
}

MatmulKey key_of(const Fp8Gemm& op, const Launch& launch) {
  MatmulKey key{.m = op.m, .n = op.n, .k = op.k, .a_row = op.k};
  key.out_type = op.out_type;
  key.trans_b = true;
  key.add_to_c = op.beta != 0;
  key.bias = op.bias != nullptr && op.a.scaling == Fp8Scaling::tensor;
  key.workspace = launch.workspace_bytes >= kMatmulWorkspace;
  key.fp8 = true;
  key.a_format = op.a.format, key.b_format = op.b.format;
  key.a_scaling = op.a.scaling, key.b_scaling = op.b.scaling;
  key.fast_sum = op.fast_sum && knows_fast_sums(op.a.scaling);
  return key;
}

}  // namespace

void fp8_gemm(const Fp8Gemm& op, const Launch& launch) {
  const Launcher run("fp8_gemm", launch);
  require_valid(op);
  if (op.m == 0 || op.n == 0) return;
  const MatmulKey key = key_of(op, launch);
  const Gemm product{.m = op.m,
                     .n = op.n,
                     .k = op.k,
                     .out_type = op.out_type,
                     .a = op.a.data,
                     .b = op.b.data,
                     .c = op.c,
                     .trans_b = true,
                     .beta = op.beta,
                     .bias = key.bias ? op.bias : nullptr};
  MatmulPlans& plans = MatmulPlans::of_current_device();
  const MatmulScales scales{op.a.scales, op.b.scales};
  MatmulPlan plan = plans.find(key, product, launch, scales);
  set_scales(plan, scales);
  run_matmul(plans.handle(), plan, product, launch);
  if (op.bias == nullptr || key.bias) return;
  const int64_t count = op.m * op.n;
  run({.blocks = divide_up(count, kThreads), .threads = kThreads}, add_bias_kernel, count, op.n,
      static_cast<const Bf16*>(op.bias), static_cast<Bf16*>(op.c));
}

int64_t fp8_gemm_workspace(const Fp8Gemm&) { return kMatmulWorkspace; }

}  // namespace lockstep::kernels::cuda
