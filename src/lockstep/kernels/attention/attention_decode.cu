// Attention of new tokens against the cache: a block a (row, head), its warps share the keys.
#include "lockstep/kernels/attention/attention_launch.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kPerLane = kMostHeadDim / kWarp;  // columns lane, lane + 32, ...

// What a warp has seen: maximum, sum of exponentials and the weighted values, a lane's columns of them.
struct Seen {
  float max = -INFINITY, sum = 0;
  float value[kPerLane] = {};
};

template <class T>
__device__ void load_head(float (&to)[kPerLane], const T* head, int head_dim) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    to[i] = lane + i * kWarp < head_dim ? to_float(head[lane + i * kWarp]) : 0.0f;
}

template <class T>
__device__ void see(Seen& seen, const float (&query)[kPerLane], const T* key, const T* value, int head_dim,
                    float softcap) {
  float k[kPerLane], v[kPerLane], score = 0;
  load_head(k, key, head_dim);
  load_head(v, value, head_dim);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) score += query[i] * k[i];
  score = warp_fold(score, Sum{});
  if (softcap > 0) score = softcap * tanhf(score / softcap);
  const float max = fmaxf(seen.max, score);
  const float before = expf(seen.max - max), now = expf(score - max);
  seen.max = max;
  seen.sum = seen.sum * before + now;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) seen.value[i] = seen.value[i] * before + now * v[i];
}

// Folds the warps in order; thread c writes column c.
template <class T>
__device__ void write_folded(const Seen& seen, T* out, int head_dim) {
  __shared__ float maxima[kWarps], sums[kWarps], values[kWarps][kMostHeadDim];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (lane == 0) {
    maxima[warp] = seen.max;
    sums[warp] = seen.sum;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) values[warp][lane + i * kWarp] = seen.value[i];
  __syncthreads();
  float max = -INFINITY;
  for (int w = 0; w < kWarps; ++w) max = fmaxf(max, maxima[w]);
  for (int c = threadIdx.x; c < head_dim; c += kThreads) {
    float sum = 0, value = 0;
    for (int w = 0; w < kWarps; ++w) {
      const float weight = expf(maxima[w] - max);
      sum += weight * sums[w];
      value += weight * values[w][c];
    }
    out[c] = from_float<T>(value / sum);
  }
}

// The new rows' keys and values, into the cache: all of them before anyone attends.
template <class T>
__global__ void append_kernel(AttentionDecode op, int64_t qkv_width, int64_t cache_width, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / cache_width, column = i % cache_width;
  const T* key =
      static_cast<const T*>(op.qkv) + row * qkv_width + op.shape.heads * op.shape.head_dim + column;
  const int64_t at = (op.slot_of[row] * op.capacity + op.positions[row]) * cache_width + column;
  static_cast<T*>(op.keys)[at] = key[0];
  static_cast<T*>(op.values)[at] = key[cache_width];
}

template <class T>
__global__ void attention_decode_kernel(AttentionDecode op, int64_t qkv_width, float scale) {
  const int heads = static_cast<int>(op.shape.heads), kv_heads = static_cast<int>(op.shape.kv_heads);
  const int dim = static_cast<int>(op.shape.head_dim), group = heads / kv_heads;
  const int64_t row = blockIdx.x / heads, position = op.positions[row];
  const int head = static_cast<int>(blockIdx.x % heads), kv_head = head / group;
  const int64_t cache_width = static_cast<int64_t>(kv_heads) * dim;
  const int64_t at = op.slot_of[row] * op.capacity * cache_width + kv_head * dim;
  const T* keys = static_cast<const T*>(op.keys) + at;
  const T* values = static_cast<const T*>(op.values) + at;
  const int64_t window = op.shape.scores.window;
  const int64_t first_key = window > 0 && position >= window ? position - window + 1 : 0;

  float query[kPerLane];
  load_head(query, static_cast<const T*>(op.qkv) + row * qkv_width + head * dim, dim);
#pragma unroll
  for (float& q : query) q *= scale;
  Seen seen;
  for (int64_t i = first_key + threadIdx.x / kWarp; i <= position; i += kWarps)
    see(seen, query, keys + i * cache_width, values + i * cache_width, dim, op.shape.scores.softcap);
  write_folded(seen, static_cast<T*>(op.out) + static_cast<int64_t>(blockIdx.x) * dim, dim);
}

}  // namespace

void attention_decode(const AttentionDecode& op, const Launch& launch) {
  const Launcher run("attention_decode", launch);
  check_head_dim(op.shape.head_dim);
  const int64_t width = op.shape.kv_heads * op.shape.head_dim, count = op.shape.samples * width;
  by_type(op.shape.type, [&](auto element) {
    using T = decltype(element);
    run({.blocks = divide_up(count, kThreads), .threads = kThreads}, append_kernel<T>, op,
        op.shape.qkv_width(), width, count);
    run({.blocks = op.shape.samples * op.shape.heads, .threads = kThreads}, attention_decode_kernel<T>, op,
        op.shape.qkv_width(), op.shape.scale());
  });
}

}  // namespace lockstep::kernels::cuda
