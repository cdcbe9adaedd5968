// Attention against some of the keys, backward: probabilities come from the final log-sum-exp, so a part
// needs nothing of the others.
//
// One task is one key-value head of one sample with all its query heads, so that every gradient is summed by
// one thread, in a fixed order: blocks of keys in turn, query heads in turn, runs of queries from last to
// first.
#include "lockstep/kernels/attention/attention_part_cpu.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// A run of queries of one head, from query number `first` on.
struct QueryRun {
  int64_t first, rows;
  Matrix q, dout;
  const float *lse, *delta;
  float* dq;
  int64_t stride;  // of dq
  bool add;        // to dq; otherwise it is written
};

struct KeyGradients {
  float *dk, *dv;
  int64_t stride;
  bool add;  // as of dq
};

void backward_block(const AttentionPartShape& shape, const FirstKeys& first_keys, const QueryRun& run,
                    const KeyBlock& block, const KeyGradients& gradients, float* p, float* ds) {
  const int64_t dim = shape.head_dim, stride = round_up(block.count, kLanes);
  multiply({.m = run.rows,
            .n = block.count,
            .k = dim,
            .alpha = shape.scale(),
            .a = run.q,
            .b = transposed(block.k),
            .c = p,
            .c_stride = stride});
  multiply({.m = run.rows,
            .n = block.count,
            .k = dim,
            .a = run.dout,
            .b = transposed(block.v),
            .c = ds,
            .c_stride = stride});
  for (int64_t row = 0; row < run.rows; ++row) {
    softmax_backward(p + row * stride, ds + row * stride,
                     seen_keys(shape, first_keys, run.first + row, block), block.count, run.lse[row],
                     run.delta[row], shape.scores.softcap);
  }
  const float beta = gradients.add ? 1.0f : 0.0f;
  multiply({.m = block.count,
            .n = dim,
            .k = run.rows,
            .beta = beta,
            .a = transposed({p, stride}),
            .b = run.dout,
            .c = gradients.dv,
            .c_stride = gradients.stride});
  multiply({.m = block.count,
            .n = dim,
            .k = run.rows,
            .alpha = shape.scale(),
            .beta = beta,
            .a = transposed({ds, stride}),
            .b = run.q,
            .c = gradients.dk,
            .c_stride = gradients.stride});
  multiply({.m = run.rows,
            .n = dim,
            .k = block.count,
            .alpha = shape.scale(),
            .beta = run.add ? 1.0f : 0.0f,
            .a = {ds, stride},
            .b = block.k,
            .c = run.dq,
            .c_stride = run.stride});
}

template <class T>
QueryRun read_run(const AttentionPartBackward& op, int64_t sample, int64_t head, int64_t first, bool add,
                  Scratch& scratch) {
  const AttentionPartShape& shape = op.shape;
  const int64_t dim = shape.head_dim, width = shape.heads * dim, row = sample * shape.q_len + first;
  const int64_t rows = smaller(query_rows(shape), shape.q_len - first);
  const int64_t lse_at = (sample * shape.heads + head) * shape.q_len + first;
  return {
      .first = first,
      .rows = rows,
      .q = read_head(static_cast<const T*>(op.q) + row * shape.q_stride + head * dim, shape.q_stride, rows,
                     dim, scratch),
      .dout = read_head(static_cast<const T*>(op.dout) + row * width + head * dim, width, rows, dim, scratch),
      .lse = op.lse + lse_at,
      .delta = op.delta + lse_at,
      .dq = op.dq + row * width + head * dim,
      .stride = width,
      .add = add};
}

// One block of keys against every query that sees it.
template <class T>
void backward_keys(const AttentionPartBackward& op, int64_t sample, int64_t kv_head, int64_t key,
                   Scratch scratch) {
  const AttentionPartShape& shape = op.shape;
  const int64_t dim = shape.head_dim, step = query_rows(shape), group = shape.heads / shape.kv_heads;
  const int64_t row = sample * shape.kv_len + key, at = row * shape.kv_stride + kv_head * dim;
  float* p = scratch.take(step * kKeyBlock);
  float* ds = scratch.take(step * kKeyBlock);
  const KeyBlock whole = read_keys(shape, static_cast<const T*>(op.k) + at, static_cast<const T*>(op.v) + at,
                                   key, shape.kv_len, scratch);
  KeyGradients gradients = {.dk = op.dk + row * op.dkv_stride + kv_head * dim,
                            .dv = op.dv + row * op.dkv_stride + kv_head * dim,
                            .stride = op.dkv_stride,
                            .add = !op.first_kv};
  const int64_t last = (shape.q_len - 1) / step * step, earliest = shape.causal ? key / step * step : 0;
  const bool adds = !op.first_q && !op.first_kv;  // nothing need be written where nothing is seen
  const FirstKeys first_keys(shape, op.documents, sample);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    // The last run sees the whole block: it may write dk and dv, so that nothing need be cleared before.
    for (int64_t first = last; first >= earliest; first -= step, gradients.add = true) {
      if (adds && first_keys(first) >= key + whole.count) continue;
      Scratch of_run = scratch;
      const bool add = !op.first_q || key > 0;  // every run sees the first block
      const QueryRun run = read_run<T>(op, sample, head, first, add, of_run);
      KeyBlock seen = whole;
      seen.count = keys_up_to(shape, first + run.rows - 1, whole);
      backward_block(shape, first_keys, run, seen, gradients, p, ds);
    }
  }
}

}  // namespace

void attention_delta(const AttentionDelta& op, const Launch&) {
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(op.samples * op.q_len, op.heads * op.head_dim, [&](int64_t row) {
      const int64_t sample = row / op.q_len, token = row % op.q_len;
      for (int64_t head = 0; head < op.heads; ++head) {
        const int64_t at = (row * op.heads + head) * op.head_dim;
        op.delta[(sample * op.heads + head) * op.q_len + token] =
            dot(static_cast<const T*>(op.dout) + at, static_cast<const T*>(op.out) + at, op.head_dim);
      }
    });
  });
}

void attention_part_backward(const AttentionPartBackward& op, const Launch& launch) {
  const AttentionPartShape& shape = op.shape;
  require_valid(shape, op.documents);
  const int64_t slice = part_scratch_floats(shape);
  require_workspace(launch, slice * 4, "attention_part_backward");
  with_type(shape.type, [&](auto tag) {
    device::run_items(shape.samples * shape.kv_heads, part_threads(shape, launch),
                      [&](int64_t task, int lane) {
                        const OneThread one_thread;
                        float* scratch = static_cast<float*>(launch.workspace) + lane * slice;
                        for (int64_t key = 0; key < shape.kv_len; key += kKeyBlock)
                          backward_keys<decltype(tag)>(op, task / shape.kv_heads, task % shape.kv_heads, key,
                                                       Scratch(scratch));
                      });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
