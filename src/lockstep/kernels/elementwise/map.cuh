// out[i] = f(in[i]...) over flat memory: computed in fp32, rounded once. out may be any of the inputs.
#pragma once

#include <algorithm>

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"

namespace lockstep::kernels {

constexpr int kMapThreads = 256;

template <int N, class Out, class Function, class... In>
__device__ inline Vec<Out, N> map_vector(const Function& function, const Vec<In, N>&... in) {
  Vec<Out, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) out[j] = from_float<Out>(function(to_float(in[j])...));
  return out;
}

template <int N, class Out, class Function, class... In>
__global__ void map_kernel(int64_t count, Function function, Out* out, const In*... in) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * N;
  if (i < count) store<N>(out + i, map_vector<N, Out>(function, load<N>(in + i)...));
}

template <class Function, class Out, class... In>
void map(const Launcher& run, int64_t count, Function function, Out* out, const In*... in) {
  constexpr int kMany = std::max({kWide<Out>, kWide<In>...});
  const bool aligned = is_aligned(16, out) && (is_aligned(16, in) && ...);
  by_width<kMany>(aligned && count % kMany == 0, [&](auto width) {
    constexpr int N = width.value;
    run({.blocks = divide_up(count, int64_t{kMapThreads} * N), .threads = kMapThreads},
        map_kernel<N, Out, Function, In...>, count, function, out, in...);
  });
}

}  // namespace lockstep::kernels
