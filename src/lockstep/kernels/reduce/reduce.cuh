// Sums and maxima over a warp or a block, in an order that only the number of threads decides.
//
// Every lane gets the result, bit for bit the same: a butterfly adds the same two values on both sides.
#pragma once

#include <cuda_runtime.h>

namespace lockstep::kernels {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Over aligned groups of kLanes neighbouring lanes.
template <int kLanes = kWarp, class Fold, class T>
__device__ inline T warp_fold(T value, Fold fold) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = fold(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// Over a block of kThreads in one dimension. Holds a barrier before and after its shared memory is used,
// so calls may follow each other.
template <int kThreads, class Fold, class T>
__device__ inline T block_fold(T value, Fold fold) {
  constexpr int kWarps = kThreads / kWarp;
  static_assert(kThreads % kWarp == 0 && kWarps <= kWarp && (kWarps & (kWarps - 1)) == 0);
  __shared__ T of_warps[kWarps];
  value = warp_fold(value, fold);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  return warp_fold<kWarps>(of_warps[threadIdx.x % kWarps], fold);
}

}  // namespace lockstep::kernels
