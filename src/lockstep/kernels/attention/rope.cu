// Rotary embedding of q and k in place: a thread turns N pairs of one head.
#include "lockstep/kernels/attention/attention.h"
#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct RopeSizes {
  int64_t rows, seq_len, turned_heads, half, head_dim, qkv_width;  // turned: of q and k
};

template <class T, int N>
__global__ void rope_kernel(RopeSizes sizes, T* qkv, const float* table, int64_t first_position,
                            const int32_t* row_positions, const int32_t* begins, float direction) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i >= sizes.rows * sizes.turned_heads * sizes.half) return;
  const int64_t pair = i % sizes.half, head = i / sizes.half % sizes.turned_heads;
  const int64_t row = i / sizes.half / sizes.turned_heads;
  T* first = qkv + row * sizes.qkv_width + head * sizes.head_dim + pair;
  T* second = first + sizes.half;
  int64_t position = row_positions ? row_positions[row] : first_position + row % sizes.seq_len;
  if (begins) position -= begins[row];
  const float* cosines = table + position * 2 * sizes.half + pair;
  const float* sines = cosines + sizes.half;
  Vec<T, N> a = load<N>(first), b = load<N>(second);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float x = to_float(a[j]), y = to_float(b[j]);
    const float cosine = cosines[j], sine = sines[j] * direction;
    a[j] = from_float<T>(x * cosine - y * sine);
    b[j] = from_float<T>(y * cosine + x * sine);
  }
  store<N>(first, a);
  store<N>(second, b);
}

}  // namespace

void rope(const Rope& op, const Launch& launch) {
  const Launcher run("rope", launch);
  LS_ASSERT(op.turned() % 2 == 0 && op.turned() <= op.shape.head_dim);
  const RopeSizes sizes = {.rows = op.shape.rows(),
                           .seq_len = op.shape.seq_len,
                           .turned_heads = op.shape.heads + op.shape.kv_heads,
                           .half = op.turned() / 2,
                           .head_dim = op.shape.head_dim,
                           .qkv_width = op.shape.qkv_width()};
  const int64_t pairs = sizes.rows * sizes.turned_heads * sizes.half;
  by_type(op.shape.type, [&](auto element) {
    using T = decltype(element);
    const bool vectors = fits_vectors<T>(sizes.half, op.qkv) && sizes.head_dim % kWide<T> == 0;
    by_width<kWide<T>>(vectors, [&](auto width) {
      constexpr int N = width.value;
      run({.blocks = divide_up(pairs, kThreads * N), .threads = kThreads}, rope_kernel<T, N>, sizes,
          static_cast<T*>(op.qkv), op.table, op.first_position, op.row_positions, op.begins,
          op.backward ? -1.0f : 1.0f);
    });
  });
}

}  // namespace lockstep::kernels::cuda
