// Products on MKL, cut into tiles by shape: each tile is prepared (bias or old values), multiplied and
// rounded by one thread while it is in that thread's cache.
#include "lockstep/kernels/gemm/gemm.h"

#include "lockstep/kernels/gemm/blas_cpu.h"
#include "lockstep/kernels/gemm/row_gemm_cpu.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

using device::DType;

struct Tiling {
  int64_t rows, columns;            // of one tile
  int64_t row_tiles, column_tiles;  // how many
};

// Few, large tiles, since each packs its operands again; but an even number of them, so that two or four
// threads share them well. Measured: below about 32K elements a tile loses more than a thread gains.
int64_t tile_count(int64_t m, int64_t n, int64_t k) {
  if (m * n * k < 500'000) return 1;
  const int64_t elements = m * n;
  int64_t tiles = 2;
  while (tiles < 16 && elements >= tiles * 2 * 32768) tiles *= 2;
  while (tiles >= 16 && tiles < 64 && elements >= tiles * 2 * 262144) tiles *= 2;
  return tiles;
}

// Rows are halved first, since tiles as wide as C stream through it best, until they are too flat.
Tiling cut(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kFlat = 96;
  int64_t rows = m, columns = n;
  for (int64_t tiles = tile_count(m, n, k); tiles > 1; tiles /= 2) {
    if ((rows >= 2 * kFlat && rows >= columns / 4) || rows >= columns) {
      rows = round_up((rows + 1) / 2, kLanes);
    } else {
      columns = round_up((columns + 1) / 2, kLanes);
    }
  }
  return {rows, columns, (m + rows - 1) / rows, (n + columns - 1) / columns};
}

// Where the operands lie in fp32: in the caller's memory, or widened in the workspace.
struct Operands {
  Matrix a, b;
  float* c = nullptr;
  int64_t c_row = 0;
};

// Stored values of A and B, those between rows included and none behind the last row.
int64_t stored(int64_t rows, int64_t columns, int64_t row) {
  return rows > 0 ? (rows - 1) * row + columns : 0;
}
int64_t values_of_a(const Gemm& op) {
  return op.trans_a ? stored(op.k, op.m, op.row_of_a()) : stored(op.m, op.k, op.row_of_a());
}
int64_t values_of_b(const Gemm& op) {
  return op.trans_b ? stored(op.n, op.k, op.row_of_b()) : stored(op.k, op.n, op.row_of_b());
}

int64_t staged_bytes(DType type, int64_t count) { return type == DType::f32 ? 0 : round_up(count * 4, 256); }

float* widen_operand(DType type, const void* values, int64_t count, float* staged) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    const T* from = static_cast<const T*>(values);
    for_blocks(count,
               [&](int64_t begin, int64_t end) { widen_run(from + begin, end - begin, staged + begin); });
  });
  return staged;
}

Operands stage(const Gemm& op, char* workspace) {
  const auto in_fp32 = [&](const void* values, int64_t count) -> const float* {
    if (op.in_type == DType::f32) return static_cast<const float*>(values);
    float* staged = reinterpret_cast<float*>(workspace);
    workspace += staged_bytes(op.in_type, count);
    return widen_operand(op.in_type, values, count, staged);
  };
  Operands staged;
  staged.a = {in_fp32(op.a, values_of_a(op)), op.row_of_a(), op.trans_a};
  staged.b = {in_fp32(op.b, values_of_b(op)), op.row_of_b(), op.trans_b};
  staged.c = op.out_type == DType::f32 ? static_cast<float*>(op.c) : reinterpret_cast<float*>(workspace);
  staged.c_row = op.out_type == DType::f32 ? op.row_of_c() : op.n;
  return staged;
}

// What the product is added to: the bias, or the old values of C where they had to be widened.
template <class In, class Out>
void prepare_row(const Gemm& op, int64_t row, int64_t column, int64_t columns, float* c) {
  if (op.bias != nullptr) {
    widen_run(static_cast<const In*>(op.bias) + column, columns, c);
  } else if (op.beta != 0 && op.out_type != DType::f32) {
    widen_run(static_cast<const Out*>(op.c) + row * op.row_of_c() + column, columns, c);
  }
}

template <class In, class Out>
void run_tile(const Gemm& op, const Operands& in, const Tiling& tiling, int64_t tile) {
  const int64_t row = tile / tiling.column_tiles * tiling.rows;
  const int64_t column = tile % tiling.column_tiles * tiling.columns;
  const int64_t rows = smaller(tiling.rows, op.m - row), columns = smaller(tiling.columns, op.n - column);
  float* c = in.c + row * in.c_row + column;
  for (int64_t r = 0; r < rows; ++r) prepare_row<In, Out>(op, row + r, column, columns, c + r * in.c_row);

  Product product{.m = rows, .n = columns, .k = op.k, .a = in.a, .b = in.b, .c = c, .c_stride = in.c_row};
  product.alpha = op.alpha;
  product.beta = op.bias != nullptr ? 1.0f : op.beta;
  product.a.data += op.trans_a ? row : row * in.a.stride;
  product.b.data += op.trans_b ? column * in.b.stride : column;
  multiply(product);

  if (op.out_type == DType::f32) return;
  for (int64_t r = 0; r < rows; ++r) {
    narrow_run(c + r * in.c_row, columns, static_cast<Out*>(op.c) + (row + r) * op.row_of_c() + column);
  }
}

}  // namespace

int64_t gemm_workspace(const Gemm& op) {
  return staged_bytes(op.in_type, values_of_a(op)) + staged_bytes(op.in_type, values_of_b(op)) +
         staged_bytes(op.out_type, op.m * op.n);
}

void gemm(const Gemm& op, const Launch& launch) {
  if (op.m == 0 || op.n == 0) return;
  if (op.before_gelu != nullptr) {
    Gemm product = op;
    product.c = op.before_gelu;
    product.before_gelu = nullptr;
    gemm(product, launch);
    return activate({ActivationKind::gelu_tanh, op.out_type, op.m * op.n, op.before_gelu, op.c}, launch);
  }
  if (op.gelu_at != nullptr) {
    Gemm product = op;
    product.gelu_at = nullptr;
    gemm(product, launch);
    return activate_backward({ActivationKind::gelu_tanh, op.out_type, op.m * op.n, op.gelu_at, op.c, op.c},
                             launch);
  }
  require_workspace(launch, gemm_workspace(op), "gemm");
  if (launch.rows_alone && !op.trans_a) return row_gemm(op, static_cast<char*>(launch.workspace));
  const Operands in = stage(op, static_cast<char*>(launch.workspace));
  const Tiling tiling = cut(op.m, op.n, op.k);
  const int64_t tiles = tiling.row_tiles * tiling.column_tiles;
  with_type(op.in_type, [&](auto in_tag) {
    with_type(op.out_type, [&](auto out_tag) {
      share(tiles, true, [&](int64_t tile, int) {
        const OneThread one_thread;
        run_tile<decltype(in_tag), decltype(out_tag)>(op, in, tiling, tile);
      });
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
