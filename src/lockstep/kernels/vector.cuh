// Element types as CUDA knows them, and vectors of up to 16 bytes that load and store in one instruction.
//
// Kernels compute in fp32: to_float() on the way in, from_float<T>() (nearest even) on the way out.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace lockstep::kernels {

using Bf16 = __nv_bfloat16;
using F16 = __half;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bf16 x) { return __bfloat162float(x); }
__device__ inline float to_float(F16 x) { return __half2float(x); }

template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline Bf16 from_float<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline F16 from_float<F16>(float x) {
  return __float2half_rn(x);
}

// Bytes that a pointer to Vec<T, N> must be aligned to.
template <class T, int N>
constexpr int kVectorAlignment = N * sizeof(T) < 16 ? N * sizeof(T) : 16;

template <class T, int N>
struct alignas(kVectorAlignment<T, N>) Vec {
  T at[N];
  __device__ T& operator[](int i) { return at[i]; }
  __device__ const T& operator[](int i) const { return at[i]; }
};

// Elements in 16 bytes: the widest vector of one instruction.
template <class T>
constexpr int kWide = 16 / sizeof(T);

template <int N, class T>
__device__ inline Vec<T, N> load(const T* from) {
  return *reinterpret_cast<const Vec<T, N>*>(from);
}

template <int N, class T>
__device__ inline void store(T* to, const Vec<T, N>& values) {
  *reinterpret_cast<Vec<T, N>*>(to) = values;
}

}  // namespace lockstep::kernels
