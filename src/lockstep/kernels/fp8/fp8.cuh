// What the fp8 casts share with kernels that find a largest magnitude on the way.
//
// Magnitudes are folded as the integers that their bits are: that is the order of numbers, with infinity and
// NaN above all of them, and a maximum of integers is the same in any order, so atomics change no bit.
#pragma once

#include "lockstep/kernels/reduce/reduce.cuh"
#include "lockstep/kernels/vector.cuh"

namespace lockstep::kernels {

struct MaxBits {
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

template <class T>
__device__ inline uint32_t magnitude_bits(T value) {
  return __float_as_uint(to_float(value)) & 0x7FFFFFFFu;
}

template <class T, int N>
__device__ inline uint32_t largest_bits(const Vec<T, N>& values, uint32_t top = 0) {
#pragma unroll
  for (int j = 0; j < N; ++j) top = MaxBits{}(top, magnitude_bits(values[j]));
  return top;
}

// The block's largest into *amax, which the launcher has set to zero. Every thread of the block comes here.
// Most blocks see that another has already put more there, and spare the rest of them an atomic.
template <int kThreads>
__device__ inline void raise_amax(uint32_t mine, float* amax) {
  const uint32_t top = block_fold<kThreads>(mine, MaxBits{});
  auto* bits = reinterpret_cast<unsigned*>(amax);
  if (threadIdx.x == 0 && top > __ldcg(bits)) atomicMax(bits, top);
}

}  // namespace lockstep::kernels
