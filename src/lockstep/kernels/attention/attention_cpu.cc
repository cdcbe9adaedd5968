// Causal attention, forward: for a run of queries, all scores at once, a softmax, and one product with
// the values. Keys past the last query of the run, or before the window of its first, are never touched.
#include "lockstep/kernels/attention/attention_cpu.h"

#include <math.h>

#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// Queries [first, first + query_rows) of one head of one sample.
template <class T>
void forward_run(const AttentionForward& op, int64_t sample, int64_t head, int64_t first, Scratch scratch) {
  const AttentionShape& shape = op.shape;
  const int64_t dim = shape.head_dim, stride = shape.qkv_width();
  const int64_t rows = smaller(query_rows(shape), shape.seq_len - first);
  const int64_t key = shape.first_key(first) / kLanes * kLanes, columns = first + rows - key;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const T* base = static_cast<const T*>(op.qkv) + sample * shape.seq_len * stride;
  const T* keys = base + key * stride + (shape.heads + kv_head) * dim;
  const Matrix q = read_head(base + first * stride + head * dim, stride, rows, dim, scratch);
  const Matrix k = read_head(keys, stride, columns, dim, scratch);
  const Matrix v = read_head(keys + shape.kv_heads * dim, stride, columns, dim, scratch);
  const int64_t out_stride = shape.heads * dim;
  T* out_at = static_cast<T*>(op.out) + (sample * shape.seq_len + first) * out_stride + head * dim;
  const WrittenHead<T> out(out_at, out_stride, rows, dim, scratch);
  const int64_t score_stride = round_up(columns, kLanes);
  float* scores = scratch.take(rows * score_stride);

  multiply({.m = rows,
            .n = columns,
            .k = dim,
            .alpha = shape.scale(),
            .a = q,
            .b = {k.data, k.stride, true},
            .c = scores,
            .c_stride = score_stride});
  float* lse = op.lse + (sample * shape.heads + head) * shape.seq_len + first;
  float* inverse = scratch.take(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const SeenKeys seen = {shape.first_key(first + row) - key, first + row + 1 - key};
    float* scores_of = scores + row * score_stride;
    if (shape.scores.softcap > 0)
      cap_scores(scores_of + seen.begin, seen.end - seen.begin, shape.scores.softcap);
    const SoftmaxRow softmax = exponentiate(scores_of, seen, columns);
    lse[row] = softmax.highest + logf(softmax.sum);
    inverse[row] = 1.0f / softmax.sum;
  }
  multiply({.m = rows,
            .n = dim,
            .k = columns,
            .a = {scores, score_stride},
            .b = v,
            .c = out.data,
            .c_stride = out.data_stride});
  for (int64_t row = 0; row < rows; ++row) {
    float* values = out.data + row * out.data_stride;
#pragma omp simd
    for (int64_t i = 0; i < dim; ++i) values[i] *= inverse[row];
  }
  out.commit();
}

}  // namespace

int64_t attention_workspace(const AttentionShape& shape) {
  const int64_t threads = larger(1, smaller(device::thread_count(), shape.samples * shape.heads));
  return threads * attention_scratch_floats(shape) * 4;
}

void attention_forward(const AttentionForward& op, const Launch& launch) {
  const AttentionShape& shape = op.shape;
  if (shape.documents > 0) {
    return each_document(shape, op.documents, [&](const AttentionShape& one, int64_t row) {
      attention_forward({.shape = one,
                         .qkv = row_at(op.qkv, row, one.qkv_width(), one.type),
                         .out = row_at(op.out, row, one.heads * one.head_dim, one.type),
                         .lse = op.lse + row * one.heads},
                        launch);
    });
  }
  const int64_t slice = attention_scratch_floats(shape);
  require_workspace(launch, slice * 4, "attention_forward");
  const int64_t threads = attention_threads(shape, launch);
  const int64_t runs = (shape.seq_len + query_rows(shape) - 1) / query_rows(shape);
  const int64_t tasks = shape.samples * shape.heads * runs;
  with_type(shape.type, [&](auto tag) {
    const bool worth_it = shape.rows() * shape.heads * shape.seq_len >= kSerialBelow;
    device::run_items(tasks, worth_it ? static_cast<int>(threads) : 1, [&](int64_t task, int lane) {
      const OneThread one_thread;
      float* scratch = static_cast<float*>(launch.workspace) + lane * slice;
      const int64_t run = runs - 1 - task % runs, head = task / runs % shape.heads;  // long runs first
      forward_run<decltype(tag)>(op, task / runs / shape.heads, head, run * query_rows(shape),
                                 Scratch(scratch));
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
