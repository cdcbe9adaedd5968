// Attention of one new token a sample against the cache: a block a (sample, head), its warps share the keys.
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

template <class T>
__global__ void attention_decode_kernel(AttentionDecode op, int64_t qkv_width, int64_t first_key,
                                        float scale) {
  const int heads = static_cast<int>(op.shape.heads), kv_heads = static_cast<int>(op.shape.kv_heads);
  const int dim = static_cast<int>(op.shape.head_dim), group = heads / kv_heads;
  const int64_t sample = blockIdx.x / heads;
  const int head = static_cast<int>(blockIdx.x % heads), kv_head = head / group;
  const T* row = static_cast<const T*>(op.qkv) + sample * qkv_width;
  const T* new_key = row + (heads + kv_head) * dim;
  const T* new_value = row + (heads + kv_heads + kv_head) * dim;
  const int64_t cache_width = static_cast<int64_t>(kv_heads) * dim;
  T* keys = static_cast<T*>(op.keys) + sample * op.capacity * cache_width + kv_head * dim;
  T* values = static_cast<T*>(op.values) + sample * op.capacity * cache_width + kv_head * dim;

  // The first head of the group extends the cache; nobody reads the new entry from there in this launch.
  if (head % group == 0) {
    for (int c = threadIdx.x; c < dim; c += kThreads) {
      keys[op.position * cache_width + c] = new_key[c];
      values[op.position * cache_width + c] = new_value[c];
    }
  }
  float query[kPerLane];
  load_head(query, row + head * dim, dim);
#pragma unroll
  for (float& q : query) q *= scale;
  Seen seen;
  for (int64_t i = first_key + threadIdx.x / kWarp; i <= op.position; i += kWarps) {
    const bool cached = i < op.position;
    see(seen, query, cached ? keys + i * cache_width : new_key, cached ? values + i * cache_width : new_value,
        dim, op.shape.scores.softcap);
  }
  write_folded(seen, static_cast<T*>(op.out) + static_cast<int64_t>(blockIdx.x) * dim, dim);
}

}  // namespace

void attention_decode(const AttentionDecode& op, const Launch& launch) {
  const Launcher run("attention_decode", launch);
  LS_ASSERT(op.position >= 0 && op.position < op.capacity, "the cache is full");
  check_head_dim(op.shape.head_dim);
  by_type(op.shape.type, [&](auto element) {
    run({.blocks = op.shape.samples * op.shape.heads, .threads = kThreads},
        attention_decode_kernel<decltype(element)>, op, op.shape.qkv_width(), op.shape.first_key(op.position),
        op.shape.scale());
  });
}

}  // namespace lockstep::kernels::cuda
