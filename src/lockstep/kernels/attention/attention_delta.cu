// delta = sum over a head's columns of out * dout: what the softmax's gradient subtracts. A warp a row.
#include "lockstep/kernels/attention/attention_part.h"
#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/reduce/reduce.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void attention_delta_kernel(AttentionDelta op) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  if (i >= op.samples * op.q_len * op.heads) return;
  const int64_t row = i / op.heads, head = i % op.heads, sample = row / op.q_len;
  const T* o = static_cast<const T*>(op.out) + i * op.head_dim;
  const T* d = static_cast<const T*>(op.dout) + i * op.head_dim;
  float sum = 0;
  for (int64_t c = threadIdx.x % kWarp; c < op.head_dim; c += kWarp) sum += to_float(o[c]) * to_float(d[c]);
  sum = warp_fold(sum, Sum{});
  if (threadIdx.x % kWarp == 0) op.delta[(sample * op.heads + head) * op.q_len + row % op.q_len] = sum;
}

}  // namespace

void attention_delta(const AttentionDelta& op, const Launch& launch) {
  const Launcher run("attention_delta", launch);
  const int64_t rows = op.samples * op.q_len * op.heads;
  by_type(op.type, [&](auto element) {
    run({.blocks = divide_up(rows * kWarp, kThreads), .threads = kThreads},
        attention_delta_kernel<decltype(element)>, op);
  });
}

}  // namespace lockstep::kernels::cuda
