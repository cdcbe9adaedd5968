// Attention against some of the keys, forward: for a run of queries, blocks of keys in turn. Each block is
// merged into the result by its log-sum-exp, just as the whole part is merged into what other parts gave, so
// scratch does not grow with the context.
#include <math.h>

#include "lockstep/kernels/attention/attention_part_cpu.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

LS_INLINE void scale_row(float* values, int64_t count, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

// What one run of queries of one head has so far.
struct RunningRows {
  float* out;  // rows of `stride`
  float* lse;
  int64_t rows, stride;
};

// One row of scores against a block of keys becomes the probabilities that the merged row gives to it; the
// row so far is scaled to make room for them.
LS_INLINE void merge_row(float* scores, const SeenKeys& seen, int64_t columns, float* out, int64_t dim,
                         float* lse, bool first) {
  if (seen.begin == seen.end) {
    clear_lanes(scores, 0, columns);
    if (first) *lse = -__builtin_inff();
    return;
  }
  const SoftmaxRow block = exponentiate(scores, seen, columns);
  const float of_block = block.highest + logf(block.sum), before = *lse;
  if (first) {
    *lse = of_block;
    return scale_row(scores, columns, 1.0f / block.sum);
  }
  const float top = before > of_block ? before : of_block;
  *lse = top + logf(expf(before - top) + expf(of_block - top));
  scale_row(out, dim, expf(before - *lse));
  scale_row(scores, columns, expf(block.highest - *lse));
}

// A run of queries, of which row 0 is number `query`, against one block of keys.
void merge_block(const AttentionPartShape& shape, const FirstKeys& first_keys, const Matrix& q,
                 const KeyBlock& block, int64_t query, const RunningRows& running, bool first,
                 float* scores) {
  const int64_t dim = shape.head_dim, stride = round_up(block.count, kLanes);
  multiply({.m = running.rows,
            .n = block.count,
            .k = dim,
            .alpha = shape.scale(),
            .a = q,
            .b = transposed(block.k),
            .c = scores,
            .c_stride = stride});
  for (int64_t row = 0; row < running.rows; ++row) {
    const SeenKeys seen = seen_keys(shape, first_keys, query + row, block);
    if (shape.scores.softcap > 0)
      cap_scores(scores + row * stride + seen.begin, seen.end - seen.begin, shape.scores.softcap);
    merge_row(scores + row * stride, seen, block.count, running.out + row * running.stride, dim,
              running.lse + row, first);
  }
  multiply({.m = running.rows,
            .n = dim,
            .k = block.count,
            .beta = first ? 0.0f : 1.0f,
            .a = {scores, stride},
            .b = block.v,
            .c = running.out,
            .c_stride = running.stride});
}

// Queries [first, first + query_rows) of one head of one sample.
template <class T>
void part_run(const AttentionPart& op, int64_t sample, int64_t head, int64_t first, Scratch scratch) {
  const AttentionPartShape& shape = op.shape;
  const int64_t dim = shape.head_dim, row = sample * shape.q_len + first;
  const int64_t rows = smaller(query_rows(shape), shape.q_len - first);
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  float* scores = scratch.take(query_rows(shape) * kKeyBlock);
  const Matrix q = read_head(static_cast<const T*>(op.q) + row * shape.q_stride + head * dim, shape.q_stride,
                             rows, dim, scratch);
  const int64_t out_stride = shape.heads * dim;
  const RunningRows running = {op.out + row * out_stride + head * dim,
                               op.lse + (sample * shape.heads + head) * shape.q_len + first, rows,
                               out_stride};
  const int64_t keys = shape.causal ? first + rows : shape.kv_len;
  // Blocks of which no row sees anything are passed over, but somebody must write the rows.
  const FirstKeys first_keys(shape, op.documents, sample);
  const int64_t begin = first_keys(first) / kKeyBlock * kKeyBlock;
  for (int64_t key = op.first ? 0 : larger(0, begin); key < keys; key = larger(key + kKeyBlock, begin)) {
    Scratch of_block = scratch;
    const int64_t at = (sample * shape.kv_len + key) * shape.kv_stride + kv_head * dim;
    const KeyBlock block = read_keys(shape, static_cast<const T*>(op.k) + at,
                                     static_cast<const T*>(op.v) + at, key, keys, of_block);
    merge_block(shape, first_keys, q, block, first, running, op.first && key == 0, scores);
  }
}

}  // namespace

int64_t attention_part_workspace(const AttentionPartShape& shape) {
  const int64_t runs = (shape.q_len + query_rows(shape) - 1) / query_rows(shape);
  const int64_t threads = larger(1, smaller(device::thread_count(), shape.samples * shape.heads * runs));
  return threads * part_scratch_floats(shape) * 4;
}

void attention_part(const AttentionPart& op, const Launch& launch) {
  const AttentionPartShape& shape = op.shape;
  require_valid(shape, op.documents);
  const int64_t slice = part_scratch_floats(shape);
  require_workspace(launch, slice * 4, "attention_part");
  const int64_t runs = (shape.q_len + query_rows(shape) - 1) / query_rows(shape);
  with_type(shape.type, [&](auto tag) {
    device::run_items(
        shape.samples * shape.heads * runs, part_threads(shape, launch), [&](int64_t task, int lane) {
          const OneThread one_thread;
          float* scratch = static_cast<float*>(launch.workspace) + lane * slice;
          const int64_t run = runs - 1 - task % runs, head = task / runs % shape.heads;  // long runs first
          part_run<decltype(tag)>(op, task / runs / shape.heads, head, run * query_rows(shape),
                                  Scratch(scratch));
        });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
