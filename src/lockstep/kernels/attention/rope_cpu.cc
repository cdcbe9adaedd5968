#include "lockstep/kernels/attention/attention.h"
#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// (a, b) turned by the angle whose cosine and sine are given; `direction` is -1 for the way back.
template <class T>
LS_INLINE void rotate(T* head, int64_t half, const float* cosine, const float* sine, float direction) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = widen(head[i]), b = widen(head[half + i]), s = sine[i] * direction;
    head[i] = narrow<T>(a * cosine[i] - b * s);
    head[half + i] = narrow<T>(b * cosine[i] + a * s);
  }
}

}  // namespace

void rope(const Rope& op, const Launch&) {
  const AttentionShape& shape = op.shape;
  const int64_t dim = shape.head_dim, half = op.turned() / 2, heads_turned = shape.heads + shape.kv_heads;
  const float direction = op.backward ? -1.0f : 1.0f;
  with_type(shape.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(shape.rows(), heads_turned * dim, [&](int64_t row) {
      int64_t position =
          op.row_positions != nullptr ? op.row_positions[row] : op.first_position + row % shape.seq_len;
      if (op.begins != nullptr) position -= op.begins[row];
      const float* angles = op.table + position * 2 * half;
      T* heads = static_cast<T*>(op.qkv) + row * shape.qkv_width();  // q and k heads, next to each other
      for (int64_t head = 0; head < heads_turned; ++head)
        rotate(heads + head * dim, half, angles, angles + half, direction);
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
