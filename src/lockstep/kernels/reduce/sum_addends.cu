// All addends of an element meet in one thread's registers.
#include "lockstep/kernels/reduce/sum_addends.h"

#include "lockstep/kernels/elementwise/map.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

// The sum of Inputs addends from `first` on, halves first.
template <int Inputs, int N, class In>
__device__ Vec<float, N> tree(const SumAddends& op, int first, int64_t i) {
  Vec<float, N> sum;
  if constexpr (Inputs == 1) {
    const Vec<In, N> value = load<N>(static_cast<const In*>(op.from[first]) + i);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = to_float(value[j]);
  } else {
    const Vec<float, N> left = tree<Inputs / 2, N, In>(op, first, i),
                        right = tree<Inputs / 2, N, In>(op, first + Inputs / 2, i);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = left[j] + right[j];
  }
  return sum;
}

template <int Inputs, int N, class In, class Out>
__global__ void sum_addends_kernel(const __grid_constant__ SumAddends op) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * N;
  if (i >= op.count) return;
  const Vec<float, N> sum = tree<Inputs, N, In>(op, 0, i);
  Vec<Out, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) out[j] = from_float<Out>(sum[j]);
  store<N>(static_cast<Out*>(op.to) + i, out);
}

template <int Inputs, class In, class Out>
void launch_sum(const Launcher& run, const SumAddends& op) {
  constexpr int kMany = kWide < In >> kWide<Out> ? kWide<In> : kWide<Out>;
  bool fits = op.count % kMany == 0 && is_aligned(16, op.to);
  for (int i = 0; i < op.inputs; ++i) fits = fits && is_aligned(16, op.from[i]);
  by_width<kMany>(fits, [&](auto width) {
    constexpr int N = width.value;
    run({.blocks = divide_up(op.count, int64_t{kMapThreads} * N), .threads = kMapThreads},
        sum_addends_kernel<Inputs, N, In, Out>, op);
  });
}

}  // namespace

void sum_addends(const SumAddends& op, const Launch& launch) {
  const Launcher run("sum_addends", launch);
  LS_ASSERT(op.inputs > 0 && op.inputs <= kMostAddends && (op.inputs & (op.inputs - 1)) == 0);
  if (op.count == 0) return;
  by_type(op.in, [&](auto in) {
    by_type(op.out, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      switch (op.inputs) {
        case 1:
          return launch_sum<1, In, Out>(run, op);
        case 2:
          return launch_sum<2, In, Out>(run, op);
        case 4:
          return launch_sum<4, In, Out>(run, op);
        case 8:
          return launch_sum<8, In, Out>(run, op);
        case 16:
          return launch_sum<16, In, Out>(run, op);
        case 32:
          return launch_sum<32, In, Out>(run, op);
        default:
          return launch_sum<64, In, Out>(run, op);
      }
    });
  });
}

}  // namespace lockstep::kernels::cuda
