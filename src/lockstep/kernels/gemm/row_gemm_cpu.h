// Products of few rows, for decoding: weights are read once, in the type they have, and each row of C is
// summed in an order that knows nothing of the other rows.
//
// A few rows make a product that waits for memory, so this is as fast as reading the weights. BLAS would give
// a row other bits in another company, and would have bf16 weights widened first: three times the traffic.
#pragma once

#include <type_traits>
#include <vector>

#include "lockstep/kernels/gemm/gemm.h"
#include "lockstep/kernels/numbers_cpu.h"
#include "lockstep/kernels/parallel_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

LS_INLINE Lanes load_wide(const float* from) { return load_lanes(from); }
LS_INLINE Lanes load_wide(const Bf16* from) {
  typedef uint16_t Halves __attribute__((vector_size(32), aligned(2), may_alias));
  typedef uint32_t Words __attribute__((vector_size(64)));
  const Words words = __builtin_convertvector(*reinterpret_cast<const Halves*>(from), Words) << 16;
  return __builtin_bit_cast(Lanes, words);
}
LS_INLINE Lanes load_wide(const F16* from) {
  float wide[kLanes];
  widen_run(from, kLanes, wide);
  return load_lanes(wide);
}
// The first `count` values, zeros behind them.
template <class T>
LS_INLINE Lanes load_some(const T* from, int64_t count) {
  float wide[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) wide[i] = widen(from[i]);
  return load_lanes(wide);
}

// C as it is computed: in fp32, in C itself or in the workspace.
struct RowProduct {
  const Gemm& op;
  const float* x = nullptr;  // [m, k], `x_row` apart
  int64_t x_row = 0;
  float* y = nullptr;  // [m, n]
};

constexpr int64_t kRowsAtOnce = 4;

// Weights [n, k]: outputs [column, column + kColumns) of rows [row, row + kRows). Each output has one Lanes
// of sums over k.
template <class T, int kRows, int kColumns>
LS_INLINE void dot_tile(const RowProduct& p, int64_t row, int64_t column) {
  const int64_t k = p.op.k, whole = k / kLanes * kLanes;
  const int64_t w_row = p.op.row_of_b();
  const T* w = static_cast<const T*>(p.op.b) + column * w_row;
  const float* x = p.x + row * p.x_row;
  // Zeros that the compiler cannot see: else it may take the first product for the sum and fuse another one,
  // here and not there.
  float zeros[kLanes] = {};
  __asm__ volatile("" : "+m"(zeros));
  Lanes sums[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) sums[r][c] = load_lanes(zeros);
  }
  const auto add = [&](const auto& load, int64_t i) __attribute__((always_inline)) {
    Lanes of_x[kRows];
    for (int r = 0; r < kRows; ++r) of_x[r] = load(x + r * p.x_row + i);
    for (int c = 0; c < kColumns; ++c) {
      const Lanes of_w = load(w + c * w_row + i);
      for (int r = 0; r < kRows; ++r) sums[r][c] += of_x[r] * of_w;
    }
  };
  for (int64_t i = 0; i < whole; i += kLanes) add([](const auto* from) { return load_wide(from); }, i);
  if (whole < k) add([&](const auto* from) { return load_some(from, k - whole); }, whole);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) p.y[(row + r) * p.op.n + column + c] = sum_of(sums[r][c]);
  }
}

// All rows of a run of columns; the weights of the run stay in cache from one group of rows to the next.
template <class T, int kColumns>
LS_INLINE void dot_columns(const RowProduct& p, int64_t begin, int64_t end) {
  int64_t row = 0;
  // The last columns go row by row: the compiler fuses a single column otherwise for four rows than for one.
  for (; kColumns > 1 && row + kRowsAtOnce <= p.op.m; row += kRowsAtOnce) {
    for (int64_t column = begin; column < end; column += kColumns)
      dot_tile<T, kRowsAtOnce, kColumns>(p, row, column);
  }
  for (; row < p.op.m; ++row) {
    for (int64_t column = begin; column < end; column += kColumns) dot_tile<T, 1, kColumns>(p, row, column);
  }
}

template <class T>
void rows_by_columns(const RowProduct& p) {
  constexpr int64_t kCached = 1 << 18;  // bytes of weights
  constexpr int64_t kColumns = 4;
  const int64_t row_bytes = larger(1, p.op.k * static_cast<int64_t>(sizeof(T)));
  const int64_t run = smaller(larger(kCached / row_bytes / kColumns, 1) * kColumns, 256);
  share((p.op.n + run - 1) / run, p.op.n * p.op.k >= kSerialBelow, [&](int64_t item, int) {
    const int64_t begin = item * run, end = smaller(p.op.n, begin + run);
    const int64_t whole = begin + (end - begin) / kColumns * kColumns;
    dot_columns<T, kColumns>(p, begin, whole);
    dot_columns<T, 1>(p, whole, end);
  });
}

// Weights [k, n]: kDeep rows of them are added to a run of kRows rows of y at a time, in order.
template <class T, int kDeep, int kRows>
LS_INLINE void add_weights(const RowProduct& p, int64_t row, int64_t i, int64_t column, int64_t columns) {
  const int64_t n = p.op.n, whole = columns / kLanes * kLanes, rest = columns - whole;
  const int64_t w_row = p.op.row_of_b();
  const T* w = static_cast<const T*>(p.op.b) + i * w_row + column;
  const float* x = p.x + row * p.x_row + i;
  float* y = p.y + row * n + column;
  for (int64_t j = 0; j < whole; j += kLanes) {
    Lanes weights[kDeep];
    for (int d = 0; d < kDeep; ++d) weights[d] = load_wide(w + d * w_row + j);
    for (int r = 0; r < kRows; ++r) {
      Lanes sum = load_lanes(y + r * n + j);
      for (int d = 0; d < kDeep; ++d) sum += weights[d] * x[r * p.x_row + d];
      store_lanes(y + r * n + j, sum);
    }
  }
  for (int r = 0; r < kRows && rest > 0; ++r) {
    float wide[kLanes];
    Lanes sum = load_some(y + r * n + whole, rest);
    for (int d = 0; d < kDeep; ++d) sum += load_some(w + d * w_row + whole, rest) * x[r * p.x_row + d];
    store_lanes(wide, sum);
    for (int64_t j = 0; j < rest; ++j) y[r * n + whole + j] = wide[j];
  }
}

template <class T>
void rows_by_depth(const RowProduct& p) {
  constexpr int64_t kRun = 512, kDeep = 8;
  const int64_t n = p.op.n, k = p.op.k;
  share((n + kRun - 1) / kRun, n * k >= kSerialBelow, [&](int64_t item, int) {
    const int64_t begin = item * kRun, columns = smaller(n - begin, kRun);
    for (int64_t row = 0; row < p.op.m; ++row) {
      for (int64_t j = 0; j < columns; ++j) p.y[row * n + begin + j] = 0;
    }
    const auto add = [&](auto deep, int64_t i) {
      int64_t row = 0;
      for (; row + kRowsAtOnce <= p.op.m; row += kRowsAtOnce)
        add_weights<T, deep.value, kRowsAtOnce>(p, row, i, begin, columns);
      for (; row < p.op.m; ++row) add_weights<T, deep.value, 1>(p, row, i, begin, columns);
    };
    int64_t i = 0;
    for (; i + kDeep <= k; i += kDeep) add(std::integral_constant<int, kDeep>{}, i);
    for (; i < k; ++i) add(std::integral_constant<int, 1>{}, i);
  });
}

// The factor, the bias, and the rounding to C's type.
template <class In, class Out>
LS_INLINE void finish_rows(const RowProduct& p) {
  const Gemm& op = p.op;
  if (op.bias == nullptr && op.alpha == 1 && op.out_type == device::DType::f32) return;
  for_items(op.m, op.n, [&](int64_t row) {
    float* y = p.y + row * op.n;
    const In* bias = static_cast<const In*>(op.bias);
    if (op.alpha != 1) {
#pragma omp simd
      for (int64_t j = 0; j < op.n; ++j) y[j] *= op.alpha;
    }
    if (bias != nullptr) {
#pragma omp simd
      for (int64_t j = 0; j < op.n; ++j) y[j] += widen(bias[j]);
    }
    if (op.out_type != device::DType::f32) narrow_run(y, op.n, static_cast<Out*>(op.c) + row * op.n);
  });
}

inline void rows_into_others(const Gemm& op, char* workspace);

// A row of C that is added to, or whose neighbours lie apart.
template <class Out>
LS_INLINE void add_row(const Gemm& op, const float* y, Out* c) {
  for (int64_t j = 0; j < op.n; ++j) {
    const float before = op.beta == 0 ? 0 : widen(c[j]);
    c[j] = narrow<Out>(before + op.alpha * y[j]);
  }
}

// C = alpha A op(B) + beta C (+ bias), without gelu; the workspace is gemm's.
inline void row_gemm(const Gemm& op, char* workspace) {
  if (op.beta != 0 || op.row_of_c() != op.n) return rows_into_others(op, workspace);
  RowProduct p{.op = op, .x_row = op.row_of_a()};
  with_type(op.in_type, [&](auto in_tag) {
    using In = decltype(in_tag);
    if constexpr (sizeof(In) == sizeof(float)) {
      p.x = static_cast<const float*>(op.a);
    } else {
      float* wide = reinterpret_cast<float*>(workspace);
      workspace += round_up(op.m * p.x_row * 4, 256);
      widen_run(static_cast<const In*>(op.a), (op.m - 1) * p.x_row + op.k, wide);
      p.x = wide;
    }
    p.y = op.out_type == device::DType::f32 ? static_cast<float*>(op.c) : reinterpret_cast<float*>(workspace);
    op.trans_b ? rows_by_columns<In>(p) : rows_by_depth<In>(p);
    with_type(op.out_type, [&](auto out_tag) { finish_rows<In, decltype(out_tag)>(p); });
  });
}

// One row after the other, since C has no place for what is not finished.
inline void rows_into_others(const Gemm& op, char* workspace) {
  thread_local std::vector<float> line;
  line.resize(static_cast<size_t>(op.n));
  for (int64_t row = 0; row < op.m; ++row) {
    Gemm one = op;
    one.m = 1;
    one.a = static_cast<const char*>(op.a) + row * op.row_of_a() * device::size_of(op.in_type);
    one.c = line.data();
    one.c_row = 0;
    one.out_type = device::DType::f32;
    one.alpha = 1, one.beta = 0;
    row_gemm(one, workspace);
    with_type(op.out_type, [&](auto tag) {
      using Out = decltype(tag);
      add_row(op, line.data(), static_cast<Out*>(op.c) + row * op.row_of_c());
    });
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
