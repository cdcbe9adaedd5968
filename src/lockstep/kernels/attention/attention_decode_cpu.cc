// New tokens against cached keys and values. All new keys and values are put into the cache first; then runs
// of queries of one text attend to it, a run of keys after the other, with the maximum and sum of an online
// softmax, so that scratch does not grow with the context. How a run is summed depends on its own positions
// alone: other texts in the same call change nothing.
#include <math.h>

#include "lockstep/kernels/attention/attention_cpu.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// Rows [first, first + rows) are of one slot, at consecutive positions.
struct QueryRun {
  int64_t first = 0, rows = 1;
};

// Runs end at multiples of kDecodeQueries, so that where they end depends on positions alone.
bool follows(const AttentionDecode& op, int64_t row) {
  return row > 0 && op.slot_of[row] == op.slot_of[row - 1] &&
         op.positions[row] == op.positions[row - 1] + 1 && op.positions[row] % kDecodeQueries != 0;
}

// The run that begins at row `first`.
QueryRun run_at(const AttentionDecode& op, int64_t first) {
  int64_t rows = 1;
  while (first + rows < op.shape.samples && follows(op, first + rows)) ++rows;
  return {first, rows};
}

template <class T>
void append_to_cache(const AttentionDecode& op, int64_t row) {
  const AttentionShape& shape = op.shape;
  const int64_t width = shape.kv_heads * shape.head_dim;
  const int64_t at = (op.slot_of[row] * op.capacity + op.positions[row]) * width;
  const T* k = static_cast<const T*>(op.qkv) + row * shape.qkv_width() + shape.heads * shape.head_dim;
  T* keys = static_cast<T*>(op.keys) + at;
  T* values = static_cast<T*>(op.values) + at;
  for (int64_t i = 0; i < width; ++i) {
    keys[i] = k[i];
    values[i] = k[width + i];
  }
}

// scores [rows, columns] of queries and keys; one query without BLAS, whose call would cost more.
template <class T>
LS_INLINE void score(const Matrix& q, int64_t rows, const T* keys, int64_t stride, int64_t columns,
                     int64_t dim, float scale, float* scores, Scratch scratch) {
  if (rows == 1) {
    for (int64_t j = 0; j < columns; ++j) scores[j] = dot(q.data, keys + j * stride, dim) * scale;
    return;
  }
  const Matrix k = read_head(keys, stride, columns, dim, scratch);
  multiply({.m = rows,
            .n = columns,
            .k = dim,
            .alpha = scale,
            .a = q,
            .b = transposed(k),
            .c = scores,
            .c_stride = kDecodeKeys});
}

// sums [rows, dim] += scores * values.
template <class T>
LS_INLINE void gather(const float* scores, int64_t rows, const T* values, int64_t stride, int64_t columns,
                      int64_t dim, float* sums, int64_t sums_stride, Scratch scratch) {
  if (rows == 1) {
    for (int64_t j = 0; j < columns; ++j) {
      const float power = scores[j];
      const T* value = values + j * stride;
#pragma omp simd
      for (int64_t i = 0; i < dim; ++i) sums[i] += power * widen(value[i]);
    }
    return;
  }
  const Matrix v = read_head(values, stride, columns, dim, scratch);
  multiply({.m = rows,
            .n = dim,
            .k = columns,
            .beta = 1,
            .a = {scores, kDecodeKeys},
            .b = v,
            .c = sums,
            .c_stride = sums_stride});
}

template <class T>
class RunOfQueries {
 public:
  RunOfQueries(const AttentionDecode& op, const QueryRun& run, int64_t head, Scratch scratch)
      : op_(op), run_(run), head_(head), dim_(op.shape.head_dim), stride_(round_up(dim_, kLanes)) {
    q_ = scratch.take(kDecodeQueries * stride_);
    sums_ = scratch.take(kDecodeQueries * stride_);
    scores_ = scratch.take(kDecodeQueries * kDecodeKeys);
    highest_ = scratch.take(kDecodeQueries);
    total_ = scratch.take(kDecodeQueries);
    rest_ = scratch.take(0);
    for (int64_t r = 0; r < run_.rows; ++r) {
      const int64_t row = run_.first + r;
      widen_run(static_cast<const T*>(op.qkv) + row * op.shape.qkv_width() + head * dim_, dim_,
                q_ + r * stride_);
      for (int64_t i = 0; i < stride_; ++i) sums_[r * stride_ + i] = 0;
      highest_[r] = -__builtin_inff();
      total_[r] = 0;
    }
  }

  LS_INLINE void attend() {
    const int64_t position = op_.positions[run_.first], last = position + run_.rows - 1;
    for (int64_t key = op_.shape.first_key(position) / kDecodeKeys * kDecodeKeys; key <= last;
         key += kDecodeKeys)
      see(key, smaller(kDecodeKeys, last + 1 - key));
    for (int64_t r = 0; r < run_.rows; ++r) {
      T* out = static_cast<T*>(op_.out) + ((run_.first + r) * op_.shape.heads + head_) * dim_;
      const float inverse = 1.0f / total_[r];
      for (int64_t i = 0; i < dim_; ++i) out[i] = narrow<T>(sums_[r * stride_ + i] * inverse);
    }
  }

 private:
  // Keys [key, key + columns).
  LS_INLINE void see(int64_t key, int64_t columns) {
    const AttentionShape& shape = op_.shape;
    const int64_t width = shape.kv_heads * dim_, kv_head = head_ / (shape.heads / shape.kv_heads);
    const int64_t at = (op_.slot_of[run_.first] * op_.capacity + key) * width + kv_head * dim_;
    score({q_, stride_}, run_.rows, static_cast<const T*>(op_.keys) + at, width, columns, dim_, shape.scale(),
          scores_, Scratch(rest_));
    for (int64_t r = 0; r < run_.rows; ++r) weigh(r, key, columns);
    gather(scores_, run_.rows, static_cast<const T*>(op_.values) + at, width, columns, dim_, sums_, stride_,
           Scratch(rest_));
  }

  // Scores of query r become powers below the highest so far; what was summed is scaled to that.
  LS_INLINE void weigh(int64_t r, int64_t key, int64_t columns) {
    const int64_t position = op_.positions[run_.first] + r;
    float* scores = scores_ + r * kDecodeKeys;
    const int64_t begin = larger(0, op_.shape.first_key(position) - key),
                  end = smaller(columns, position + 1 - key);
    if (begin >= end) return clear_lanes(scores, 0, columns);
    if (op_.shape.scores.softcap > 0) cap_scores(scores + begin, end - begin, op_.shape.scores.softcap);
    const SeenKeys seen = {begin, end};
    const SoftmaxRow here = exponentiate(scores, seen, columns);
    const float top = here.highest > highest_[r] ? here.highest : highest_[r];
    const float keep = expf(highest_[r] - top), scale = expf(here.highest - top);
    total_[r] = total_[r] * keep + here.sum * scale;
    highest_[r] = top;
    if (keep != 1.0f) {
      for (int64_t i = 0; i < stride_; ++i) sums_[r * stride_ + i] *= keep;
    }
    if (scale != 1.0f) {
      for (int64_t j = 0; j < columns; ++j) scores[j] *= scale;
    }
  }

  const AttentionDecode& op_;
  QueryRun run_;
  int64_t head_, dim_, stride_;
  float *q_ = nullptr, *sums_ = nullptr, *scores_ = nullptr, *highest_ = nullptr, *total_ = nullptr,
        *rest_ = nullptr;
};

}  // namespace

void attention_decode(const AttentionDecode& op, const Launch& launch) {
  const AttentionShape& shape = op.shape;
  const int64_t slice = attention_decode_workspace(shape.head_dim, 1);
  require_workspace(launch, slice, "attention_decode");
  const int64_t threads = smaller(launch.workspace_bytes / slice, device::thread_count());
  with_type(shape.type, [&](auto tag) {
    using T = decltype(tag);
    int64_t keys = 0;
    for (int64_t row = 0; row < shape.samples; ++row) {
      append_to_cache<T>(op, row);
      keys += op.positions[row] + 1 - shape.first_key(op.positions[row]);
    }
    const bool worth_it = keys * shape.heads * shape.head_dim >= kSerialBelow;
    const int64_t tasks = shape.samples * shape.heads;  // those of rows that begin no run have nothing to do
    device::run_items(tasks, worth_it ? static_cast<int>(threads) : 1, [&](int64_t task, int lane) {
      const int64_t row = task / shape.heads;
      if (follows(op, row)) return;
      const OneThread one_thread;
      float* scratch = static_cast<float*>(launch.workspace) + lane * (slice / 4);
      RunOfQueries<T>(op, run_at(op, row), task % shape.heads, Scratch(scratch)).attend();
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
