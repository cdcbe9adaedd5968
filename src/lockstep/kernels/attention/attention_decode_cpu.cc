// One new token a sample: append its key and value to the cache, then attend to all of it, with the
// running maximum and sum of an online softmax, so that scratch does not grow with the context.
#include <math.h>

#include "lockstep/kernels/attention/attention_cpu.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

template <class T>
void append_to_cache(const AttentionDecode& op, int64_t sample) {
  const AttentionShape& shape = op.shape;
  const int64_t width = shape.kv_heads * shape.head_dim, at = (sample * op.capacity + op.position) * width;
  const T* k = static_cast<const T*>(op.qkv) + sample * shape.qkv_width() + shape.heads * shape.head_dim;
  T* keys = static_cast<T*>(op.keys) + at;
  T* values = static_cast<T*>(op.values) + at;
  for (int64_t i = 0; i < width; ++i) {
    keys[i] = k[i];
    values[i] = k[width + i];
  }
}

template <class T>
void attend(const AttentionDecode& op, int64_t sample, int64_t head, Scratch scratch) {
  const AttentionShape& shape = op.shape;
  const int64_t dim = shape.head_dim, width = shape.kv_heads * dim;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads),
                at = sample * op.capacity * width + kv_head * dim;
  const T* keys = static_cast<const T*>(op.keys) + at;
  const T* values = static_cast<const T*>(op.values) + at;
  float* q = scratch.take(dim);
  float* sum_of_values = scratch.take(dim);
  widen_run(static_cast<const T*>(op.qkv) + sample * shape.qkv_width() + head * dim, dim, q);
  for (int64_t i = 0; i < dim; ++i) sum_of_values[i] = 0;

  float highest = -__builtin_inff(), sum = 0;
  for (int64_t j = shape.first_key(op.position); j <= op.position; ++j) {
    float score = dot(q, keys + j * width, dim) * shape.scale();
    if (shape.scores.softcap > 0) cap_scores(&score, 1, shape.scores.softcap);
    const float top = score > highest ? score : highest;
    const float keep = expf(highest - top), power = expf(score - top);
    highest = top;
    sum = sum * keep + power;
#pragma omp simd
    for (int64_t i = 0; i < dim; ++i)
      sum_of_values[i] = sum_of_values[i] * keep + power * widen(values[j * width + i]);
  }
  T* out = static_cast<T*>(op.out) + (sample * shape.heads + head) * dim;
  for (int64_t i = 0; i < dim; ++i) out[i] = narrow<T>(sum_of_values[i] / sum);
}

}  // namespace

void attention_decode(const AttentionDecode& op, const Launch& launch) {
  const AttentionShape& shape = op.shape;
  const int64_t slice = 2 * round_up(shape.head_dim, kLanes);
  require_workspace(launch, slice * 4, "attention_decode");
  const int64_t threads = smaller(launch.workspace_bytes / (slice * 4), device::thread_count());
  with_type(shape.type, [&](auto tag) {
    using T = decltype(tag);
    for (int64_t sample = 0; sample < shape.samples; ++sample) append_to_cache<T>(op, sample);
    const int64_t tasks = shape.samples * shape.heads;
    const bool worth_it = tasks * shape.head_dim * op.position >= kSerialBelow;
    device::run_items(tasks, worth_it ? static_cast<int>(threads) : 1, [&](int64_t task, int lane) {
      float* scratch = static_cast<float*>(launch.workspace) + lane * slice;
      attend<T>(op, task / shape.heads, task % shape.heads, Scratch(scratch));
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
