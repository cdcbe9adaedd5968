// Matrix products: cuBLASLt, and a small kernel for the bias where its epilogue cannot take it.
#include "lockstep/kernels/gemm/gemm.h"

#include "lockstep/kernels/cublas/matmul_plan.h"
#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class In, class Out>
__global__ void add_bias_kernel(int64_t count, int64_t width, const In* bias, Out* c) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) c[i] = from_float<Out>(to_float(c[i]) + to_float(bias[i % width]));
}

void add_bias(const Launcher& run, const Gemm& op) {
  const int64_t count = op.m * op.n;
  by_type(op.in_type, [&](auto in) {
    by_type(op.out_type, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      run({.blocks = divide_up(count, kThreads), .threads = kThreads}, add_bias_kernel<In, Out>, count, op.n,
          static_cast<const In*>(op.bias), static_cast<Out*>(op.c));
    });
  });
}

// Of a pointer, in bytes: 16 is all that the fastest algorithms ask for.
int alignment_of(const void* pointer) {
  int bytes = 16;
  while (!is_aligned(bytes, pointer)) bytes /= 2;
  return bytes;
}

MatmulKey key_of(const Gemm& op, const Launch& launch) {
  return {.m = op.m,
          .n = op.n,
          .k = op.k,
          .a_row = op.row_of_a(),
          .b_row = op.b_row,
          .c_row = op.c_row,
          .in_type = op.in_type,
          .out_type = op.out_type,
          .trans_a = op.trans_a,
          .trans_b = op.trans_b,
          .tf32 = launch.tf32,
          .add_to_c = op.beta != 0,
          // The epilogue wants the bias in the type of C; then it is rounded once, together with the product.
          .bias = op.bias && op.in_type == op.out_type,
          .gelu = op.before_gelu != nullptr,
          .gelu_slope = op.gelu_at != nullptr,
          .workspace = launch.workspace_bytes >= kMatmulWorkspace,
          .alignment_a = alignment_of(op.a),
          .alignment_b = alignment_of(op.b),
          .alignment_c = alignment_of(op.c)};
}

// Whether the product's own epilogue applies gelu or its slope: 16-bit, and aligned as cuBLASLt wants it.
bool fuses_gelu(const Gemm& op, const void* kept_apart) {
  return op.in_type == op.out_type && op.in_type != device::DType::f32 && op.n % 8 == 0 &&
         is_aligned(16, kept_apart) && is_aligned(16, op.c) && op.k > 0;
}

// GPUs below 8.0 have no product with gelu's slope behind it.
bool fuses_slope(const Gemm& op) {
  int device = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 8 && fuses_gelu(op, op.gelu_at);
}

// The product, then gelu in a pass of its own.
void gemm_then_gelu(const Gemm& op, const Launch& launch) {
  Gemm product = op;
  product.c = op.before_gelu;
  product.before_gelu = nullptr;
  gemm(product, launch);
  activate({ActivationKind::gelu_tanh, op.out_type, op.m * op.n, op.before_gelu, op.c}, launch);
}

void gemm_then_slope(const Gemm& op, const Launch& launch) {
  Gemm product = op;
  product.gelu_at = nullptr;
  gemm(product, launch);
  activate_backward({ActivationKind::gelu_tanh, op.out_type, op.m * op.n, op.gelu_at, op.c, op.c}, launch);
}

}  // namespace

void gemm(const Gemm& op, const Launch& launch) {
  if (op.before_gelu && !(op.bias && fuses_gelu(op, op.before_gelu))) return gemm_then_gelu(op, launch);
  const Launcher run("gemm", launch);
  if (op.gelu_at && !fuses_slope(op)) return gemm_then_slope(op, launch);
  LS_ASSERT(!op.bias || op.beta == 0, "a bias together with beta");
  LS_ASSERT(op.c_row == 0 || (!op.bias && !op.before_gelu && !op.gelu_at),
            "rows of C apart with an epilogue");
  LS_ASSERT(!op.gelu_at || (op.beta == 0 && !op.bias), "gelu's slope together with beta or a bias");
  if (op.m == 0 || op.n == 0) return;
  if (op.k == 0) {  // cuBLASLt refuses an empty sum
    LS_ASSERT(op.c_row == 0, "rows of C apart in an empty sum");
    if (op.beta == 0) run.fill_zero(op.c, op.m * op.n * device::size_of(op.out_type));
    if (op.bias) add_bias(run, op);
    return;
  }
  const MatmulKey key = key_of(op, launch);
  Gemm product = op;
  if (!key.bias) product.bias = nullptr;
  MatmulPlans& plans = MatmulPlans::of_current_device();
  run_matmul(plans.handle(), plans.find(key, product, launch), product, launch);
  if (op.bias && !key.bias) add_bias(run, op);
}

int64_t gemm_workspace(const Gemm&) { return kMatmulWorkspace; }

}  // namespace lockstep::kernels::cuda
