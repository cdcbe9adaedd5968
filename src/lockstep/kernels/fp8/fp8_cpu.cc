// The casts' reference: tiles of 128 x 128, as the scales of blocks need them.
#include "lockstep/kernels/fp8/fp8_numbers_cpu.h"
#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

constexpr int64_t kTile = kFp8Block;

// Magnitudes are compared as integers: in the order of numbers, and above them infinity, then NaN.
LS_INLINE uint32_t magnitude(Bf16 value) { return bits_of(widen(value)) & 0x7FFFFFFFu; }

LS_INLINE uint32_t largest(const Bf16* values, int64_t count, int64_t stride) {
  uint32_t top = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t one = magnitude(values[i * stride]);
    top = one > top ? one : top;
  }
  return top;
}

void raise(float* amax, uint32_t to) {
  auto* bits = reinterpret_cast<uint32_t*>(amax);
  uint32_t now = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (now < to && !__atomic_compare_exchange_n(bits, &now, to, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// `flatten`: no copy of what fp8.h declares inline is compiled for this level alone.
__attribute__((flatten)) float multiplier(Fp8 format, uint32_t amax) {
  return fp8_multiplier(format, float_of(amax));
}

// One tile of the matrix and what its rows and columns are multiplied by.
struct Tile {
  int64_t row, column, rows, columns;
  float of_row[kTile], of_column[kTile];
};

LS_INLINE void find_multipliers(const Fp8Cast& op, Tile& tile) {
  const Bf16* x = static_cast<const Bf16*>(op.x) + tile.row * op.columns + tile.column;
  uint32_t whole = 0;
  if (op.scaling == Fp8Scaling::tensor) whole = bits_of(op.amax[0]);
  if (op.scaling == Fp8Scaling::square) {
    for (int64_t r = 0; r < tile.rows; ++r)
      whole = static_cast<uint32_t>(larger(whole, largest(x + r * op.columns, tile.columns, 1)));
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    const uint32_t amax = op.scaling == Fp8Scaling::row     ? bits_of(op.amax[tile.row + r])
                          : op.scaling == Fp8Scaling::block ? largest(x + r * op.columns, tile.columns, 1)
                                                            : whole;
    tile.of_row[r] = multiplier(op.format, amax);
  }
  for (int64_t c = 0; c < tile.columns; ++c) {
    const uint32_t amax = op.scaling == Fp8Scaling::row     ? bits_of(op.amax[op.rows + tile.column + c])
                          : op.scaling == Fp8Scaling::block ? largest(x + c, tile.rows, op.columns)
                                                            : whole;
    tile.of_column[c] = multiplier(op.format, amax);
  }
}

// A copy's scales for `count` of its rows from `row` on, in its `block`-th run of 128 columns.
LS_INLINE void write_scales(Fp8Scaling scaling, int64_t rows, int64_t columns, int64_t row, int64_t block,
                            const float* multipliers, int64_t count, float* scales) {
  switch (scaling) {
    case Fp8Scaling::tensor:
      if (row == 0 && block == 0) scales[0] = 1.0f / multipliers[0];
      return;
    case Fp8Scaling::square: {
      const int64_t stride = ((columns + kTile - 1) / kTile + 3) / 4 * 4;
      scales[row / kTile * stride + block] = 1.0f / multipliers[0];
      return;
    }
    default:
      if (scaling == Fp8Scaling::row && block > 0) return;
      for (int64_t i = 0; i < count; ++i) scales[block * rows + row + i] = 1.0f / multipliers[i];
  }
}

template <Fp8 kFormat>
void cast_tile(const Fp8Cast& op, int64_t row, int64_t column) {
  Tile tile{row, column, smaller(kTile, op.rows - row), smaller(kTile, op.columns - column), {}, {}};
  find_multipliers(op, tile);
  const Bf16* x = static_cast<const Bf16*>(op.x) + row * op.columns + column;
  if (op.straight.data != nullptr) {
    auto* to = static_cast<uint8_t*>(op.straight.data) + row * op.columns + column;
    for (int64_t r = 0; r < tile.rows; ++r) {
#pragma omp simd
      for (int64_t c = 0; c < tile.columns; ++c) {
        to[r * op.columns + c] = narrow_fp8<kFormat>(widen(x[r * op.columns + c]) * tile.of_row[r]);
      }
    }
    write_scales(op.scaling, op.rows, op.columns, row, column / kTile, tile.of_row, tile.rows,
                 op.straight.scales);
  }
  if (op.transposed.data != nullptr) {
    auto* to = static_cast<uint8_t*>(op.transposed.data) + column * op.rows + row;
    for (int64_t c = 0; c < tile.columns; ++c) {
#pragma omp simd
      for (int64_t r = 0; r < tile.rows; ++r) {
        to[c * op.rows + r] = narrow_fp8<kFormat>(widen(x[r * op.columns + c]) * tile.of_column[c]);
      }
    }
    write_scales(op.scaling, op.columns, op.rows, column, row / kTile, tile.of_column, tile.columns,
                 op.transposed.scales);
  }
}

}  // namespace

void fp8_amax(const Fp8Amax& op, const Launch&) {
  const Bf16* x = static_cast<const Bf16*>(op.x);
  if (op.scaling == Fp8Scaling::tensor) {
    op.amax[0] = 0;
    for_blocks(op.rows * op.columns,
               [&](int64_t begin, int64_t end) { raise(op.amax, largest(x + begin, end - begin, 1)); });
  } else if (op.scaling == Fp8Scaling::row) {
    for_items(op.rows, op.columns,
              [&](int64_t r) { op.amax[r] = float_of(largest(x + r * op.columns, op.columns, 1)); });
    for_items(op.columns, op.rows,
              [&](int64_t c) { op.amax[op.rows + c] = float_of(largest(x + c, op.rows, op.columns)); });
  }
}

void fp8_cast(const Fp8Cast& op, const Launch&) {
  const int64_t across = (op.columns + kTile - 1) / kTile, down = (op.rows + kTile - 1) / kTile;
  with_format(op.format, [&](auto format) {
    share(across * down, true, [&](int64_t tile, int) {
      cast_tile<decltype(format)::value>(op, tile / across * kTile, tile % across * kTile);
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
