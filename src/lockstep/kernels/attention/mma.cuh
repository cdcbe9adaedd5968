// Tensor-core instructions that the attention kernels are made of, and where each lane's values lie.
//
// mma_16x8x16 multiplies a 16 x 16 by a 16 x 8 tile. With g = lane / 4 and t = lane % 4 a lane holds
//   c: rows g, g, g+8, g+8, columns 2t, 2t+1, 2t, 2t+1
//   a: pairs of columns 2t, 2t+1 of rows g, g+8, then the same of columns 2t+8, 2t+9
//   b: pairs of rows 2t, 2t+1, then 2t+8, 2t+9, of column g
#pragma once

#include <type_traits>

#include "lockstep/kernels/vector.cuh"

namespace lockstep::kernels {

// Tensor cores take fp16 from sm_75 and bf16 from sm_80. Of use in device code only.
template <class T>
struct TensorCores {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static constexpr bool value = !std::is_same_v<T, float>;
#else
  static constexpr bool value = std::is_same_v<T, F16>;
#endif
};

__device__ inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], F16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else  // sm_75 has half of it
  for (int half = 0; half < 2; ++half) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
  }
#endif
}

__device__ inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Bf16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// b of mma_16x8x16 from 16 rows of 8 two-byte elements in shared memory: lane l names row l % 16.
__device__ inline void load_transposed(uint32_t (&b)[2], const void* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(b[0]), "=r"(b[1])
               : "r"(address)
               : "memory");
}

}  // namespace lockstep::kernels
