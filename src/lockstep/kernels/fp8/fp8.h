// Matrix products in fp8: how a matrix becomes fp8 copies, and how two copies are multiplied.
//
// Matrix units multiply fp8 along the innermost dimension of both operands only: C = A B^T, with A as [m, k]
// and B as [n, k]. The three products of a linear map run along three different dimensions, so each matrix is
// cast into two copies by one pass over it: `straight`, as it lies, and `transposed`.
//
//     y  [rows, out] = x   [rows, in]   w  [out, in]^T      straight x,       straight w
//     dx [rows, in]  = dy  [rows, out]  wt [in, out]^T      straight dy,      transposed w
//     dw [out, in]   = dyt [out, rows]  xt [in, rows]^T     transposed dy,    transposed x
//
// What an element stands for is its fp8 number times its scale. A scale is the smallest power of two that
// keeps the largest magnitude (amax) of all that share it in range: multiplying by it loses nothing, so that
// a value is rounded once. Where that magnitude is not finite, the scale is NaN and so is every result:
// nothing bad hides behind a cast. All of it happens on the device, of this very matrix, in an order that
// plays no part: a maximum is the same in any.
#pragma once

#include "lockstep/base/philox.h"
#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

// Sign, exponent and fraction: e4m3 goes to 448 with 4 significant bits, e5m2 to 57344 with 3.
enum class Fp8 : uint8_t { e4m3, e5m2 };
inline const char* name_of(Fp8 format) { return format == Fp8::e4m3 ? "e4m3" : "e5m2"; }

// Which elements of a copy share a scale, and how the scales of a copy [rows, columns] lie in memory.
enum class Fp8Scaling : uint8_t {
  tensor,  // all: [1]
  row,     // a row of the copy (in the transposed one, what was a column): [rows]
  block,   // 128 neighbours of a row: [columns / 128, rows]
  square,  // 128 x 128 elements, the same in both copies: [rows / 128, columns / 128 rounded up to 4]
};
constexpr int64_t kFp8Block = 128;
constexpr int64_t kFp8Multiple = 16;        // of which all sizes must be
constexpr int64_t kFp8ScaleAlignment = 16;  // bytes at which the scales of a product's operand begin

inline int64_t fp8_blocks(int64_t count) { return (count + kFp8Block - 1) / kFp8Block; }

// Scales of a copy [rows, columns].
inline int64_t fp8_scale_count(Fp8Scaling scaling, int64_t rows, int64_t columns) {
  switch (scaling) {
    case Fp8Scaling::row:
      return rows;
    case Fp8Scaling::block:
      return fp8_blocks(columns) * rows;
    case Fp8Scaling::square:
      return fp8_blocks(rows) * ((fp8_blocks(columns) + 3) / 4 * 4);
    default:
      return 1;
  }
}

// Magnitudes that a cast of a matrix [rows, columns] must be told: blocks find their own.
inline int64_t fp8_amax_count(Fp8Scaling scaling, int64_t rows, int64_t columns) {
  return scaling == Fp8Scaling::tensor ? 1 : scaling == Fp8Scaling::row ? rows + columns : 0;
}

// What a value is multiplied by before it is rounded, 2^k; the scale is 2^-k. NaN where amax is not finite.
// Both formats end at 1.75 times a power of two: 448 = 1.75 x 2^8, 57344 = 1.75 x 2^15.
LS_HOST_DEVICE inline float fp8_multiplier(Fp8 format, float amax) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, amax);
  if (bits == 0) return 1.0f;
  if (bits >= 0x7F800000u) return __builtin_bit_cast(float, 0x7FC00000u);
  const int top = format == Fp8::e4m3 ? 8 : 15;
  const int exponent = static_cast<int>(bits >> 23) - 127, over = (bits & 0x7FFFFFu) > 0x600000u ? 1 : 0;
  const int k = top - exponent - over;
  const int most = 126;  // so that the scale is an ordinary number too
  return __builtin_bit_cast(float, static_cast<uint32_t>((k < most ? k : most) + 127) << 23);
}

// The largest magnitudes of x. tensor: amax[0]; row: of each row, then of each column.
struct Fp8Amax {
  Fp8Scaling scaling = Fp8Scaling::tensor;
  int64_t rows = 0, columns = 0;
  const void* x = nullptr;  // bf16 [rows, columns]
  float* amax = nullptr;    // [fp8_amax_count]; written, whatever it was
};

struct Fp8Copy {
  void* data = nullptr;  // null: not wanted
  float* scales = nullptr;
};

// Both copies in one pass. Sizes are multiples of 16; pointers are aligned to 16 bytes.
struct Fp8Cast {
  Fp8 format = Fp8::e4m3;
  Fp8Scaling scaling = Fp8Scaling::tensor;
  int64_t rows = 0, columns = 0;
  const void* x = nullptr;      // bf16 [rows, columns]
  const float* amax = nullptr;  // as Fp8Amax leaves it; null where the count is 0
  Fp8Copy straight;             // [rows, columns]
  Fp8Copy transposed;           // [columns, rows]
};

struct Fp8Operand {
  Fp8 format = Fp8::e4m3;
  Fp8Scaling scaling = Fp8Scaling::tensor;
  const void* data = nullptr;
  const float* scales = nullptr;
};

// C = A B^T + beta C (+ bias), rounded once. At most one operand is e5m2. Scaling is the same for both,
// but that a `block` meets a `square`.
struct Fp8Gemm {
  int64_t m = 0, n = 0, k = 0;
  Fp8Operand a;  // [m, k]
  Fp8Operand b;  // [n, k]
  device::DType out_type = device::DType::bf16;
  void* c = nullptr;           // [m, n]
  float beta = 0;              // 0 or 1
  const void* bias = nullptr;  // bf16 [n], added to every row; only with beta = 0
  // The matrix units may keep the sum with the fewer bits that they have of their own, which is faster; else
  // it goes to fp32 every so often. The CPU always sums in fp32.
  bool fast_sum = false;
};
void require_valid(const Fp8Gemm& op);  // Bug when sizes, bias or the place of scales cannot be

}  // namespace lockstep::kernels
