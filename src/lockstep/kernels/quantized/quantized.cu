#include "lockstep/kernels/quantized/quantized.h"

#include <cuda_fp8.h>

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 256;
template <Quantized kFormat>
constexpr int64_t kBlockBytes = block_bytes(kFormat);
constexpr int kRounds = 8;  // vectors of a thread: the table of levels is made once for all of them

__constant__ float kLevels[16] = {kNf4Levels[0],  kNf4Levels[1],  kNf4Levels[2],  kNf4Levels[3],
                                  kNf4Levels[4],  kNf4Levels[5],  kNf4Levels[6],  kNf4Levels[7],
                                  kNf4Levels[8],  kNf4Levels[9],  kNf4Levels[10], kNf4Levels[11],
                                  kNf4Levels[12], kNf4Levels[13], kNf4Levels[14], kNf4Levels[15]};

template <Quantized kFormat>
__device__ void fill_levels(float* levels) {
  const int code = static_cast<int>(threadIdx.x);
  if constexpr (kFormat == Quantized::fp8) {
    const __half_raw half = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3);
    levels[code] = __fdiv_rn(__half2float(__half(half)), 448.0f);
  } else if (code < 16) {
    levels[code] = kLevels[code];
  }
}

// N values that lie in one block. Codes are read two bytes at a time: blocks begin at multiples of four.
template <Quantized kFormat, class T, int N>
__device__ Vec<T, N> dequantized(const uint8_t* blocks, const float* levels, int64_t first) {
  constexpr int kBits = kFormat == Quantized::nf4 ? 4 : 8, kWords = N * kBits / 16;
  const uint8_t* block = blocks + first / kQuantizedBlock * kBlockBytes<kFormat>;
  const float largest = *reinterpret_cast<const float*>(block);
  const auto* words = reinterpret_cast<const uint16_t*>(block + 4) + first % kQuantizedBlock * kBits / 16;
  Vec<T, N> values;
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    const uint32_t word = words[w];
#pragma unroll
    for (int k = 0; k < 16 / kBits; ++k) {
      const int shift = kBits == 8 ? 8 * k : (k % 2 == 0 ? 4 : 0) + 8 * (k / 2);
      const uint32_t code = word >> shift & ((1u << kBits) - 1);
      values[w * 16 / kBits + k] = from_float<T>(__fmul_rn(levels[code], largest));
    }
  }
  return values;
}

template <Quantized kFormat, class T>
__device__ T dequantized_one(const uint8_t* blocks, const float* levels, int64_t at) {
  const uint8_t* block = blocks + at / kQuantizedBlock * kBlockBytes<kFormat>;
  const int64_t inside = at % kQuantizedBlock;
  const uint32_t code =
      kFormat == Quantized::fp8 ? block[4 + inside] : block[4 + inside / 2] >> (inside % 2 == 0 ? 4 : 0) & 15;
  return from_float<T>(__fmul_rn(levels[code], *reinterpret_cast<const float*>(block)));
}

template <Quantized kFormat, class T, int N>
__global__ void dequantize_kernel(int64_t count, const uint8_t* blocks, T* to) {
  __shared__ float levels[kFormat == Quantized::fp8 ? 256 : 16];
  fill_levels<kFormat>(levels);
  __syncthreads();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kThreads * kRounds;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = (begin + round * kThreads + threadIdx.x) * N;
    if (i >= count) return;
    if constexpr (N == 1) {
      to[i] = dequantized_one<kFormat, T>(blocks, levels, i);
    } else {
      store<N>(to + i, dequantized<kFormat, T, N>(blocks, levels, i));
    }
  }
}

template <Quantized kFormat>
void run_format(const Launcher& run, const Dequantize& op) {
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    by_width<kWide<T>>(fits_vectors<T>(op.count, op.values), [&](auto width) {
      constexpr int N = width.value;
      run({.blocks = divide_up(op.count, int64_t{kThreads} * kRounds * N), .threads = kThreads},
          dequantize_kernel<kFormat, T, N>, op.count, static_cast<const uint8_t*>(op.blocks),
          static_cast<T*>(op.values));
    });
  });
}

}  // namespace

void dequantize(const Dequantize& op, const Launch& launch) {
  const Launcher run("dequantize", launch);
  if (op.format == Quantized::fp8) {
    run_format<Quantized::fp8>(run, op);
  } else {
    run_format<Quantized::nf4>(run, op);
  }
}

}  // namespace lockstep::kernels::cuda
