// The product of two fp8 copies: both are widened, scales and all, and multiplied in fp32.
#include "lockstep/kernels/fp8/fp8_numbers_cpu.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

constexpr int64_t kTile = kFp8Block;

int64_t staged(int64_t count) { return round_up(count * 4, 256); }

// The scale of `column` in `row` of a copy [rows, columns].
LS_INLINE float scale_at(const Fp8Operand& from, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  switch (from.scaling) {
    case Fp8Scaling::row:
      return from.scales[row];
    case Fp8Scaling::block:
      return from.scales[column / kTile * rows + row];
    case Fp8Scaling::square:
      return from.scales[row / kTile * round_up((columns + kTile - 1) / kTile, 4) + column / kTile];
    default:
      return from.scales[0];
  }
}

void widen_copy(const Fp8Operand& from, int64_t rows, int64_t columns, float* to) {
  const auto* bytes = static_cast<const uint8_t*>(from.data);
  with_format(from.format, [&](auto format) {
    for_items(rows, columns, [&](int64_t row) {
      for (int64_t begin = 0; begin < columns; begin += kTile) {
        const float scale = scale_at(from, rows, columns, row, begin);
        const int64_t end = smaller(columns, begin + kTile);
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) {
          to[row * columns + c] = widen_fp8<decltype(format)::value>(bytes[row * columns + c]) * scale;
        }
      }
    });
  });
}

// The same product of the widened operands.
Gemm widened(const Fp8Gemm& op) {
  Gemm product{.m = op.m, .n = op.n, .k = op.k, .out_type = op.out_type};
  product.trans_b = true;
  product.c = op.c;
  product.beta = op.beta;
  return product;
}

}  // namespace

int64_t fp8_gemm_workspace(const Fp8Gemm& op) {
  return staged(op.m * op.k) + staged(op.n * op.k) + staged(op.n) + gemm_workspace(widened(op));
}

void fp8_gemm(const Fp8Gemm& op, const Launch& launch) {
  require_valid(op);
  if (op.m == 0 || op.n == 0) return;
  require_workspace(launch, fp8_gemm_workspace(op), "fp8_gemm");
  char* at = static_cast<char*>(launch.workspace);
  const auto take = [&](int64_t count) {
    auto* here = reinterpret_cast<float*>(at);
    at += staged(count);
    return here;
  };
  float *a = take(op.m * op.k), *b = take(op.n * op.k), *bias = take(op.n);
  widen_copy(op.a, op.m, op.k, a);
  widen_copy(op.b, op.n, op.k, b);
  Gemm product = widened(op);
  product.a = a;
  product.b = b;
  if (op.bias != nullptr) {
    widen_run(static_cast<const Bf16*>(op.bias), op.n, bias);
    product.bias = bias;
  }
  Launch rest = launch;
  rest.workspace = at;
  rest.workspace_bytes -= at - static_cast<char*>(launch.workspace);
  gemm(product, rest);
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
