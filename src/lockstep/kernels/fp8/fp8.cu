// Casts to fp8. A block takes a tile of 128 x 128 and a thread a patch of 16 x 8 of it, all in registers:
// then rows of the straight copy are written 8 bytes a thread, and rows of the transposed one 16.
#include "lockstep/kernels/fp8/fp8.h"

#include <cuda_fp8.h>

#include "lockstep/kernels/fp8/fp8.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kTile = kFp8Block;
constexpr int kRows = 16, kColumns = 8;  // of a patch
constexpr int kThreads = 128;

// Where this thread's patch lies. A warp is 8 patches wide and 4 high, a block 2 x 2 warps.
struct Place {
  int lane_across, lane_down, warp_across, warp_down;
  int in_row, in_column;  // of the tile
  int64_t tile_row, tile_column;

  __device__ explicit Place(int64_t tiles_across)
      : lane_across(threadIdx.x % 8),
        lane_down(threadIdx.x % 32 / 8),
        warp_across(threadIdx.x / 32 % 2),
        warp_down(threadIdx.x / 64),
        in_row(warp_down * 64 + lane_down * kRows),
        in_column(warp_across * 64 + lane_across * kColumns),
        tile_row(blockIdx.x / tiles_across),
        tile_column(blockIdx.x % tiles_across) {}
  __device__ int64_t row() const { return tile_row * kTile + in_row; }
  __device__ int64_t column() const { return tile_column * kTile + in_column; }
};

struct Patch {
  Vec<Bf16, kColumns> at[kRows];
};

// Sizes are multiples of 16, so a patch lies inside or outside; outside it is zeros.
__device__ Patch load_patch(const Bf16* x, int64_t columns, const Place& place, bool inside) {
  Patch patch;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (inside) {
      patch.at[r] = load<kColumns>(x + (place.row() + r) * columns + place.column());
    } else {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) patch.at[r][c] = from_float<Bf16>(0.0f);
    }
  }
  return patch;
}

// The largest of each row (or column) of a tile, in shared memory; holds a barrier.
struct TileLargest {
  uint32_t of_row[2][kTile], of_column[2][kTile];  // by the warps side by side, or above each other

  __device__ void find(const Patch& patch, const Place& place) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint32_t top = warp_fold<8>(largest_bits(patch.at[r]), MaxBits{});
      if (place.lane_across == 0) of_row[place.warp_across][place.in_row + r] = top;
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      uint32_t top = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) top = MaxBits{}(top, magnitude_bits(patch.at[r][c]));
      top = MaxBits{}(top, __shfl_xor_sync(kAllLanes, top, 8));
      top = MaxBits{}(top, __shfl_xor_sync(kAllLanes, top, 16));
      if (place.lane_down == 0) of_column[place.warp_down][place.in_column + c] = top;
    }
    __syncthreads();
  }
  __device__ uint32_t row(int r) const { return MaxBits{}(of_row[0][r], of_row[1][r]); }
  __device__ uint32_t column(int c) const { return MaxBits{}(of_column[0][c], of_column[1][c]); }
};

// What the rows and columns of a patch are multiplied by.
struct Multipliers {
  float of_row[kRows], of_column[kColumns];
};

template <Fp8 kFormat, Fp8Scaling kScaling>
__device__ Multipliers find_multipliers(const Fp8Cast& op, const Patch& patch, const Place& place,
                                        bool inside) {
  Multipliers by;
  if constexpr (kScaling == Fp8Scaling::tensor) {
    const float whole = fp8_multiplier(kFormat, op.amax[0]);
    for (float& one : by.of_row) one = whole;
    for (float& one : by.of_column) one = whole;
  } else if constexpr (kScaling == Fp8Scaling::row) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      by.of_row[r] = fp8_multiplier(kFormat, inside ? op.amax[place.row() + r] : 0.0f);
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      by.of_column[c] = fp8_multiplier(kFormat, inside ? op.amax[op.rows + place.column() + c] : 0.0f);
  } else if constexpr (kScaling == Fp8Scaling::block) {
    __shared__ TileLargest largest;
    largest.find(patch, place);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      by.of_row[r] = fp8_multiplier(kFormat, __uint_as_float(largest.row(place.in_row + r)));
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      by.of_column[c] = fp8_multiplier(kFormat, __uint_as_float(largest.column(place.in_column + c)));
  } else {
    uint32_t top = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) top = largest_bits(patch.at[r], top);
    const float whole = fp8_multiplier(kFormat, __uint_as_float(block_fold<kThreads>(top, MaxBits{})));
    for (float& one : by.of_row) one = whole;
    for (float& one : by.of_column) one = whole;
  }
  return by;
}

// The scales of kCount rows of a copy, from `row` on; `block` is the copy's run of 128 columns. `first`: of
// all threads that know the same scales, this one writes them.
template <Fp8Scaling kScaling, int kCount>
__device__ void write_scales(const float* multipliers, float* scales, int64_t rows, int64_t columns,
                             int64_t row, int64_t block, bool first) {
  if constexpr (kScaling == Fp8Scaling::tensor) {
    if (first && row == 0 && block == 0) scales[0] = 1.0f / multipliers[0];
  } else if constexpr (kScaling == Fp8Scaling::square) {
    const int64_t stride = (columns + 4 * kTile - 1) / (4 * kTile) * 4;
    if (first && row % kTile == 0) scales[row / kTile * stride + block] = 1.0f / multipliers[0];
  } else {
    if (!first || (kScaling == Fp8Scaling::row && block > 0)) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) scales[block * rows + row + i] = 1.0f / multipliers[i];
  }
}

template <Fp8 kFormat>
__device__ uint32_t pack(float a, float b, float c, float d) {
  constexpr auto kInterpretation = kFormat == Fp8::e4m3 ? __NV_E4M3 : __NV_E5M2;
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kInterpretation);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kInterpretation);
  return low | high << 16;
}

template <Fp8 kFormat>
__device__ void write_straight(const Patch& patch, const float* by, uint8_t* to, int64_t stride) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Vec<uint32_t, 2> bytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Bf16* four = &patch.at[r].at[half * 4];
      bytes[half] = pack<kFormat>(to_float(four[0]) * by[r], to_float(four[1]) * by[r],
                                  to_float(four[2]) * by[r], to_float(four[3]) * by[r]);
    }
    *reinterpret_cast<Vec<uint32_t, 2>*>(to + r * stride) = bytes;
  }
}

template <Fp8 kFormat>
__device__ void write_transposed(const Patch& patch, const float* by, uint8_t* to, int64_t stride) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    Vec<uint32_t, 4> bytes;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      bytes[q] =
          pack<kFormat>(to_float(patch.at[4 * q][c]) * by[c], to_float(patch.at[4 * q + 1][c]) * by[c],
                        to_float(patch.at[4 * q + 2][c]) * by[c], to_float(patch.at[4 * q + 3][c]) * by[c]);
    }
    *reinterpret_cast<Vec<uint32_t, 4>*>(to + c * stride) = bytes;
  }
}

template <Fp8 kFormat, Fp8Scaling kScaling>
__global__ void __launch_bounds__(kThreads) cast_kernel(Fp8Cast op, int64_t tiles_across) {
  const Place place(tiles_across);
  const int64_t row = place.row(), column = place.column();
  const bool inside = row < op.rows && column < op.columns;
  const Patch patch = load_patch(static_cast<const Bf16*>(op.x), op.columns, place, inside);
  const Multipliers by = find_multipliers<kFormat, kScaling>(op, patch, place, inside);
  if (!inside) return;
  if (op.straight.data != nullptr) {
    write_straight<kFormat>(patch, by.of_row,
                            static_cast<uint8_t*>(op.straight.data) + row * op.columns + column, op.columns);
    write_scales<kScaling, kRows>(by.of_row, op.straight.scales, op.rows, op.columns, row, place.tile_column,
                                  place.in_column == 0);
  }
  if (op.transposed.data != nullptr) {
    write_transposed<kFormat>(patch, by.of_column,
                              static_cast<uint8_t*>(op.transposed.data) + column * op.rows + row, op.rows);
    write_scales<kScaling, kColumns>(by.of_column, op.transposed.scales, op.columns, op.rows, column,
                                     place.tile_row, place.in_row == 0);
  }
}

constexpr int kAmaxThreads = 512, kAmaxVectors = 8;  // of 8 elements, by one thread

__global__ void __launch_bounds__(kAmaxThreads) amax_kernel(int64_t vectors, const Bf16* x, float* amax) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kAmaxThreads * kAmaxVectors + threadIdx.x;
  uint32_t top = 0;
#pragma unroll
  for (int j = 0; j < kAmaxVectors; ++j) {
    const int64_t i = first + j * kAmaxThreads;
    if (i < vectors) top = largest_bits(load<8>(x + i * 8), top);
  }
  raise_amax<kAmaxThreads>(top, amax);
}

__global__ void __launch_bounds__(kThreads)
    row_amax_kernel(int64_t rows, int64_t columns, const Bf16* x, int64_t tiles_across, float* amax) {
  __shared__ TileLargest largest;
  const Place place(tiles_across);
  const bool inside = place.row() < rows && place.column() < columns;
  largest.find(load_patch(x, columns, place, inside), place);
  const int64_t row = place.tile_row * kTile + threadIdx.x, column = place.tile_column * kTile + threadIdx.x;
  auto* bits = reinterpret_cast<unsigned*>(amax);
  if (row < rows) atomicMax(bits + row, largest.row(threadIdx.x));
  if (column < columns) atomicMax(bits + rows + column, largest.column(threadIdx.x));
}

template <Fp8 kFormat>
void cast_as(const Launcher& run, const Fp8Cast& op) {
  const int64_t across = fp8_blocks(op.columns);
  const Grid grid{.blocks = across * fp8_blocks(op.rows), .threads = kThreads};
  switch (op.scaling) {
    case Fp8Scaling::tensor:
      return run(grid, cast_kernel<kFormat, Fp8Scaling::tensor>, op, across);
    case Fp8Scaling::row:
      return run(grid, cast_kernel<kFormat, Fp8Scaling::row>, op, across);
    case Fp8Scaling::block:
      return run(grid, cast_kernel<kFormat, Fp8Scaling::block>, op, across);
    case Fp8Scaling::square:
      return run(grid, cast_kernel<kFormat, Fp8Scaling::square>, op, across);
  }
}

}  // namespace

void fp8_amax(const Fp8Amax& op, const Launch& launch) {
  const Launcher run("fp8_amax", launch);
  const int64_t count = fp8_amax_count(op.scaling, op.rows, op.columns);
  run.fill_zero(op.amax, count * static_cast<int64_t>(sizeof(float)));
  const auto* x = static_cast<const Bf16*>(op.x);
  if (op.scaling == Fp8Scaling::tensor) {
    const int64_t vectors = op.rows * op.columns / 8;
    run({.blocks = divide_up(vectors, kAmaxThreads * kAmaxVectors), .threads = kAmaxThreads}, amax_kernel,
        vectors, x, op.amax);
  } else if (op.scaling == Fp8Scaling::row) {
    const int64_t across = fp8_blocks(op.columns);
    run({.blocks = across * fp8_blocks(op.rows), .threads = kThreads}, row_amax_kernel, op.rows, op.columns,
        x, across, op.amax);
  }
}

void fp8_cast(const Fp8Cast& op, const Launch& launch) {
  const Launcher run("fp8_cast", launch);
  LS_ASSERT(op.rows % kFp8Multiple == 0 && op.columns % kFp8Multiple == 0);
  op.format == Fp8::e4m3 ? cast_as<Fp8::e4m3>(run, op) : cast_as<Fp8::e5m2>(run, op);
}

}  // namespace lockstep::kernels::cuda
