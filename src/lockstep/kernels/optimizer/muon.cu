// Muon's passes over a matrix: one thread an element, sums in blocks of fixed runs.
#include "lockstep/kernels/optimizer/muon.h"

#include <cmath>

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/elementwise/map.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/reduce/reduce.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSumThreads = 1024;

__device__ int64_t element() { return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; }

Grid over(int64_t count) { return {.blocks = divide_up(count, kThreads), .threads = kThreads}; }

template <class M>
__global__ void momentum_kernel(MuonMomentum op) {
  const int64_t i = element();
  if (i >= op.count) return;
  if (op.state->apply == 0) {
    op.direction[i] = 0;
    return;
  }
  M* m = static_cast<M*>(op.m);
  const float g = op.gradient[i] * op.state->clip;
  const float mean = op.beta * to_float(m[i]) + (1.0f - op.beta) * g;
  m[i] = from_float<M>(mean);
  op.direction[i] = g + op.beta * (mean - g);
}

__global__ void __launch_bounds__(kSumThreads) square_run_kernel(Normalize op) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kNormalizeRun;
  const int64_t end = begin + kNormalizeRun < op.count ? begin + kNormalizeRun : op.count;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kSumThreads)
    sum += static_cast<double>(op.x[i]) * static_cast<double>(op.x[i]);
  sum = block_fold<kSumThreads>(sum, Sum{});
  if (threadIdx.x == 0) op.sums[blockIdx.x] = sum;
}

// Every block folds the few sums of runs alike.
__global__ void scale_kernel(Normalize op, int64_t runs) {
  __shared__ float by;
  if (threadIdx.x == 0) {
    double total = 0;
    for (int64_t run = 0; run < runs; ++run) total += op.sums[run];
    by = static_cast<float>(1.0 / fmax(sqrt(total), static_cast<double>(op.least)));
  }
  __syncthreads();
  const int64_t i = element();
  if (i < op.count) op.x[i] *= by;
}

struct Blended {
  float by_x, by_y;
  __device__ float operator()(float x, float y) const { return by_x * x + by_y * y; }
};

__global__ void apply_kernel(MuonApply op) {
  const int64_t i = element();
  if (i >= op.count || op.state->apply == 0) return;
  const float rate = op.inputs->learning_rate * op.rate;
  op.master[i] -= rate * (op.scale * op.direction[i] + op.weight_decay * op.master[i]);
}

}  // namespace

void muon_momentum(const MuonMomentum& op, const Launch& launch) {
  const Launcher run("muon_momentum", launch);
  if (op.m_type == device::DType::bf16) {
    run(over(op.count), momentum_kernel<Bf16>, op);
  } else {
    run(over(op.count), momentum_kernel<float>, op);
  }
}

void normalize(const Normalize& op, const Launch& launch) {
  const Launcher run("normalize", launch);
  const int64_t runs = divide_up(op.count, kNormalizeRun);
  run({.blocks = runs, .threads = kSumThreads}, square_run_kernel, op);
  run(over(op.count), scale_kernel, op, runs);
}

void blend(const Blend& op, const Launch& launch) {
  const Launcher run("blend", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    map(run, op.count, Blended{op.by_x, op.by_y}, static_cast<T*>(op.out), static_cast<const T*>(op.x),
        static_cast<const T*>(op.y));
  });
}

void muon_apply(const MuonApply& op, const Launch& launch) {
  const Launcher run("muon_apply", launch);
  run(over(op.count), apply_kernel, op);
}

}  // namespace lockstep::kernels::cuda
