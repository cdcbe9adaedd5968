// Causal attention, backward: scores are computed again from q and k, probabilities from the saved lse.
//
// One task is one key-value head of one sample with all its query heads, so that the gradients of k and
// v are summed by one thread, in a fixed order: query heads in turn, runs of queries from last to first.
// Where there is a window, a run touches its own keys only.
#include "lockstep/kernels/attention/attention_cpu.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// One run's rows of the probabilities and of their gradients, which become gradients of the scores.
struct ScoreRows {
  float* p;
  float* ds;
  int64_t stride;
};

LS_INLINE Matrix rows_from(const Matrix& matrix, int64_t row) {
  return {matrix.data + row * matrix.stride, matrix.stride};
}

struct QueryHead {
  Matrix q, out, dout;
  const float* lse;
  float* dq;
  int64_t dq_stride;
};

struct KeyValueHead {
  Matrix k, v;
  float *dk, *dv;
  int64_t stride;  // of dk and dv
};

// Queries [first, first + rows) against the keys that they see; dk and dv are added to when `add`.
void backward_run(const AttentionShape& shape, const QueryHead& head, const KeyValueHead& kv, int64_t first,
                  bool add, const ScoreRows& scores) {
  const int64_t dim = shape.head_dim, rows = smaller(query_rows(shape), shape.seq_len - first);
  const int64_t key = shape.first_key(first) / kLanes * kLanes, columns = first + rows - key;
  const Matrix k = rows_from(kv.k, key), v = rows_from(kv.v, key);
  const Matrix q = rows_from(head.q, first), out = rows_from(head.out, first),
               dout = rows_from(head.dout, first);
  multiply({.m = rows,
            .n = columns,
            .k = dim,
            .alpha = shape.scale(),
            .a = q,
            .b = transposed(k),
            .c = scores.p,
            .c_stride = scores.stride});
  multiply({.m = rows,
            .n = columns,
            .k = dim,
            .a = dout,
            .b = transposed(v),
            .c = scores.ds,
            .c_stride = scores.stride});
  for (int64_t row = 0; row < rows; ++row) {
    const float delta = dot(dout.data + row * dout.stride, out.data + row * out.stride, dim);
    const SeenKeys seen = {shape.first_key(first + row) - key, first + row + 1 - key};
    softmax_backward(scores.p + row * scores.stride, scores.ds + row * scores.stride, seen, columns,
                     head.lse[first + row], delta, shape.scores.softcap);
  }
  const Matrix p = {scores.p, scores.stride}, ds = {scores.ds, scores.stride};
  const float beta = add ? 1.0f : 0.0f;
  multiply({.m = columns,
            .n = dim,
            .k = rows,
            .beta = beta,
            .a = transposed(p),
            .b = dout,
            .c = kv.dv + key * kv.stride,
            .c_stride = kv.stride});
  multiply({.m = columns,
            .n = dim,
            .k = rows,
            .alpha = shape.scale(),
            .beta = beta,
            .a = transposed(ds),
            .b = q,
            .c = kv.dk + key * kv.stride,
            .c_stride = kv.stride});
  multiply({.m = rows,
            .n = dim,
            .k = columns,
            .alpha = shape.scale(),
            .a = ds,
            .b = k,
            .c = head.dq + first * head.dq_stride,
            .c_stride = head.dq_stride});
}

void clear_rows(float* values, int64_t stride, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < width; ++i) values[row * stride + i] = 0;
  }
}

template <class T>
void backward_task(const AttentionBackward& op, int64_t sample, int64_t kv_head, Scratch scratch) {
  const AttentionShape& shape = op.shape;
  const int64_t dim = shape.head_dim, rows = shape.seq_len, stride = shape.qkv_width();
  const int64_t out_stride = shape.heads * dim, group = shape.heads / shape.kv_heads;
  const int64_t k_at = (shape.heads + kv_head) * dim, v_at = k_at + shape.kv_heads * dim;
  const T* qkv = static_cast<const T*>(op.qkv) + sample * rows * stride;
  T* dqkv = static_cast<T*>(op.dqkv) + sample * rows * stride;
  const int64_t score_stride = round_up(rows, kLanes);
  const ScoreRows scores = {scratch.take(query_rows(shape) * score_stride),
                            scratch.take(query_rows(shape) * score_stride), score_stride};
  const WrittenHead<T> dk(dqkv + k_at, stride, rows, dim, scratch),
      dv(dqkv + v_at, stride, rows, dim, scratch);
  const KeyValueHead kv = {read_head(qkv + k_at, stride, rows, dim, scratch),
                           read_head(qkv + v_at, stride, rows, dim, scratch), dk.data, dv.data,
                           dk.data_stride};
  const bool windowed = shape.first_key(rows - 1) > 0;
  if (windowed) {
    for (float* values : {kv.dk, kv.dv}) clear_rows(values, kv.stride, rows, dim);
  }

  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    Scratch of_head = scratch;
    const int64_t out_at = sample * rows * out_stride + head * dim;
    const WrittenHead<T> dq(dqkv + head * dim, stride, rows, dim, of_head);
    const QueryHead query = {
        read_head(qkv + head * dim, stride, rows, dim, of_head),
        read_head(static_cast<const T*>(op.out) + out_at, out_stride, rows, dim, of_head),
        read_head(static_cast<const T*>(op.dout) + out_at, out_stride, rows, dim, of_head),
        op.lse + (sample * shape.heads + head) * rows,
        dq.data,
        dq.data_stride};
    // Without a window the last run reaches every key: it writes dk and dv, and nothing need be cleared.
    for (int64_t run = (rows - 1) / query_rows(shape); run >= 0; --run) {
      const bool add = windowed || head > kv_head * group || run < (rows - 1) / query_rows(shape);
      backward_run(shape, query, kv, run * query_rows(shape), add, scores);
    }
    dq.commit();
  }
  dk.commit();
  dv.commit();
}

}  // namespace

void attention_backward(const AttentionBackward& op, const Launch& launch) {
  const AttentionShape& shape = op.shape;
  if (shape.documents > 0) {
    return each_document(shape, op.documents, [&](const AttentionShape& one, int64_t row) {
      const int64_t out_width = one.heads * one.head_dim;
      attention_backward({.shape = one,
                          .qkv = row_at(op.qkv, row, one.qkv_width(), one.type),
                          .out = row_at(op.out, row, out_width, one.type),
                          .dout = row_at(op.dout, row, out_width, one.type),
                          .lse = op.lse + row * one.heads,
                          .dqkv = row_at(op.dqkv, row, one.qkv_width(), one.type)},
                         launch);
    });
  }
  const int64_t slice = attention_scratch_floats(shape);
  require_workspace(launch, slice * 4, "attention_backward");
  const int64_t threads = attention_threads(shape, launch);
  const int64_t tasks = shape.seq_len > 0 ? shape.samples * shape.kv_heads : 0;
  with_type(shape.type, [&](auto tag) {
    const bool worth_it = shape.rows() * shape.heads * shape.seq_len >= kSerialBelow;
    device::run_items(tasks, worth_it ? static_cast<int>(threads) : 1, [&](int64_t task, int lane) {
      const OneThread one_thread;
      float* scratch = static_cast<float*>(launch.workspace) + lane * slice;
      backward_task<decltype(tag)>(op, task / shape.kv_heads, task % shape.kv_heads, Scratch(scratch));
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
