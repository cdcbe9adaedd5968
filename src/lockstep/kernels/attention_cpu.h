// What the CPU's attention passes share: views of one head inside packed rows, and per-thread scratch.
//
// fp32 heads are read and written where they lie, by their row stride; other types are widened into
// scratch. Scratch is one slice of the workspace a thread: how many slices there are never shows in a result.
#pragma once

#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/blas_cpu.h"
#include "lockstep/kernels/numbers_cpu.h"
#include "lockstep/kernels/parallel_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

// Queries handled at a time, against all keys up to the last of them. Fewer waste less on keys that are
// masked for most of them; more make for faster products.
LS_INLINE int64_t query_rows(const AttentionShape& shape) { return shape.seq_len <= 128 ? 32 : 64; }

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

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
