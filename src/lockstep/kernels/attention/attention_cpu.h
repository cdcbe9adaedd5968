// What the CPU's attention passes share: views of one head inside packed rows, softmax, and scratch.
//
// fp32 heads are read and written where they lie, by their row stride; other types are widened into
// scratch. Scratch is one slice of the workspace a thread: how many slices there are never shows in a result.
#pragma once

#include <type_traits>

#include "lockstep/kernels/attention/attention.h"
#include "lockstep/kernels/gemm/blas_cpu.h"
#include "lockstep/kernels/numbers_cpu.h"
#include "lockstep/kernels/parallel_cpu.h"
#include "lockstep/kernels/tanh_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

// Queries handled at a time, against all keys up to the last of them. Fewer waste less on keys that are
// masked for most of them; more make for faster products.
LS_INLINE int64_t query_rows(int64_t queries) { return queries <= 128 ? 32 : 64; }
LS_INLINE int64_t query_rows(const AttentionShape& shape) { return query_rows(shape.seq_len); }

// Hands out runs of one thread's scratch, each on a cache line of its own.
class Scratch {
 public:
  explicit Scratch(float* begin) : next_(begin) {}
  LS_INLINE float* take(int64_t count) {
    float* taken = next_;
    next_ += round_up(count, kLanes);
    return taken;
  }

 private:
  float* next_;
};

// Scores and their gradients of one run of queries, eight widened heads, one row.
LS_INLINE int64_t attention_scratch_floats(const AttentionShape& shape) {
  const int64_t scores = query_rows(shape) * round_up(shape.seq_len, kLanes);
  const int64_t head = round_up(shape.seq_len * shape.head_dim, kLanes);
  return 2 * scores + (shape.type == device::DType::f32 ? 0 : 8 * head) +
         2 * round_up(shape.head_dim, kLanes) + query_rows(shape);
}

// use(shape, first row) for each document, as a sample of its own.
template <class Use>
LS_INLINE void each_document(const AttentionShape& shape, const Documents& documents, const Use& use) {
  for (int64_t i = 0; i < shape.documents; ++i) {
    AttentionShape one = shape;
    one.samples = 1;
    one.documents = 0;
    one.seq_len = documents.offsets[i + 1] - documents.offsets[i];
    if (one.seq_len > 0) use(one, documents.offsets[i]);
  }
}

// Row `row` of a matrix of `type`.
template <class Pointer>
LS_INLINE Pointer row_at(Pointer values, int64_t row, int64_t width, device::DType type) {
  using Bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char*, char*>;
  return static_cast<Bytes>(values) + row * width * device::size_of(type);
}

LS_INLINE int64_t attention_threads(const AttentionShape& shape, const Launch& launch) {
  const int64_t slices = launch.workspace_bytes / (attention_scratch_floats(shape) * 4);
  return smaller(slices, device::thread_count());
}

// One head's [rows, head_dim], read in fp32.
template <class T>
LS_INLINE Matrix read_head(const T* first, int64_t stride, int64_t rows, int64_t dim, Scratch& scratch) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return {first, stride};
  } else {
    float* widened = scratch.take(rows * dim);
    for (int64_t row = 0; row < rows; ++row) widen_run(first + row * stride, dim, widened + row * dim);
    return {widened, dim};
  }
}

// One head's [rows, head_dim], computed in fp32; commit() rounds it to where it belongs.
template <class T>
class WrittenHead {
 public:
  LS_INLINE WrittenHead(T* first, int64_t stride, int64_t rows, int64_t dim, Scratch& scratch)
      : first_(first), stride_(stride), rows_(rows), dim_(dim) {
    if constexpr (sizeof(T) == sizeof(float)) {
      data = first;
      data_stride = stride;
    } else {
      data = scratch.take(rows * dim);
      data_stride = dim;
    }
  }
  LS_INLINE void commit() const {
    if constexpr (sizeof(T) != sizeof(float)) {
      for (int64_t row = 0; row < rows_; ++row) narrow_run(data + row * dim_, dim_, first_ + row * stride_);
    }
  }

  float* data;
  int64_t data_stride;

 private:
  T* first_;
  int64_t stride_, rows_, dim_;
};

LS_INLINE Matrix transposed(const Matrix& matrix) { return {matrix.data, matrix.stride, true}; }

template <class A, class B>
LS_INLINE float dot(const A* a, const B* b, int64_t count) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) total += widen(a[i]) * widen(b[i]);
  return total;
}

struct SoftmaxRow {
  float highest, sum;
};

// The columns of a row of scores that count: keys [begin, end).
struct SeenKeys {
  int64_t begin, end;
  LS_INLINE int64_t first_lanes() const { return begin / kLanes * kLanes; }
  LS_INLINE LanesInt inside(int64_t j) const { return lanes_before(j, end) & ~lanes_before(j, begin); }
};

LS_INLINE void clear_lanes(float* values, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; j += kLanes) store_lanes(values + j, Lanes{});
}

// Scores of seen keys become exp(score - highest), the others of [0, columns) zero. Rows have room for whole
// Lanes, so what lies past the end is read, and masked.
LS_INLINE SoftmaxRow exponentiate(float* scores, const SeenKeys& seen, int64_t columns) {
  const Lanes lowest = fill_lanes(-__builtin_inff());
  Lanes highest = lowest;
  for (int64_t j = seen.first_lanes(); j < seen.end; j += kLanes) {
    const Lanes score = seen.inside(j) ? load_lanes(scores + j) : lowest;
    highest = score > highest ? score : highest;
  }
  const float top = maximum_of(highest);
  Lanes sum = {};
  clear_lanes(scores, 0, seen.first_lanes());
  for (int64_t j = seen.first_lanes(); j < seen.end; j += kLanes) {
    const Lanes power = seen.inside(j) ? exponential(load_lanes(scores + j) - top) : Lanes{};
    store_lanes(scores + j, power);
    sum += power;
  }
  clear_lanes(scores, round_up(seen.end, kLanes), columns);
  return {top, sum_of(sum)};
}

// In: scores (after the cap) and gradients of probabilities. Out: probabilities, and gradients of the scores
// before the cap; zero for keys that are not seen.
template <bool kCapped>
LS_INLINE void softmax_backward(float* p, float* ds, const SeenKeys& seen, int64_t columns, float lse,
                                float delta, float inverse_cap) {
  for (float* values : {p, ds}) clear_lanes(values, 0, seen.first_lanes());
  for (int64_t j = seen.first_lanes(); j < seen.end; j += kLanes) {
    const LanesInt inside = seen.inside(j);
    const Lanes score = load_lanes(p + j);
    const Lanes power = exponential(score - lse);
    Lanes gradient = power * (load_lanes(ds + j) - delta);
    if constexpr (kCapped) gradient *= 1.0f - (score * inverse_cap) * (score * inverse_cap);
    store_lanes(p + j, inside ? power : Lanes{});
    store_lanes(ds + j, inside ? gradient : Lanes{});
  }
  for (float* values : {p, ds}) clear_lanes(values, round_up(seen.end, kLanes), columns);
}

LS_INLINE void softmax_backward(float* p, float* ds, const SeenKeys& seen, int64_t columns, float lse,
                                float delta, float cap) {
  if (cap == 0) return softmax_backward<false>(p, ds, seen, columns, lse, delta, 0.0f);
  cap_scores(p + seen.begin, seen.end - seen.begin, cap);
  softmax_backward<true>(p, ds, seen, columns, lse, delta, 1.0f / cap);
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
