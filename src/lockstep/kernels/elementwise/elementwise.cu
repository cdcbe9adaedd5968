// Casts, sums, initial values and checks over flat memory.
#include "lockstep/kernels/elementwise/elementwise.h"

#include <cmath>

#include "lockstep/kernels/elementwise/map.cuh"
#include "lockstep/kernels/normal_draw.h"
#include "lockstep/kernels/reduce/reduce.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct Constant {
  float value;
  __device__ float operator()() const { return value; }
};

struct Capped {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};

template <class T>
__global__ void regroup_kernel(Regroup op) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;  // of y
  if (i >= op.rows * op.outer * op.inner * op.width) return;
  const int64_t column = i % op.width, group = i / op.width;
  const int64_t outer = group % op.outer, inner = group / op.outer % op.inner;
  const int64_t row = group / op.outer / op.inner;
  static_cast<T*>(op.y)[i] =
      static_cast<const T*>(op.x)[((row * op.outer + outer) * op.inner + inner) * op.width + column];
}

__global__ void fill_normal_kernel(FillNormal op) {
  const int64_t q = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  const int64_t at = q * 4 - op.first % 4;  // of the four; those before op.first are left out
  if (at >= op.count) return;
  const base::Random4 words =
      base::philox(normal_key(op.seed, op.stream), static_cast<uint64_t>(op.first / 4 + q), kNormalCounter);
  float four[4];
  normal_pair(words.x, words.y, &four[0], &four[1]);
  normal_pair(words.z, words.w, &four[2], &four[3]);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (at + j >= 0 && at + j < op.count) op.values[at + j] = fmaf(op.deviation, four[j], op.mean);
  }
}

constexpr int kCountThreads = 256;
constexpr int64_t kCountPerThread = 16;

template <class T>
__global__ void count_nonfinite_kernel(int64_t size, const T* values, unsigned long long* count) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kCountThreads * kCountPerThread;
  int found = 0;
#pragma unroll 4
  for (int64_t j = 0; j < kCountPerThread; ++j) {
    const int64_t i = block + j * kCountThreads + threadIdx.x;
    if (i < size) found += isfinite(to_float(values[i])) ? 0 : 1;
  }
  found = block_fold<kCountThreads>(found, Sum{});
  if (threadIdx.x == 0 && found > 0)
    atomicAdd(count, static_cast<unsigned long long>(found));  // integers: any order
}

__global__ void mark_kernel(Mark op) {
  *static_cast<volatile uint32_t*>(op.word) = op.value;
  __threadfence_system();  // seen by the host before the next kernel begins
}

}  // namespace

void cast(const Cast& op, const Launch& launch) {
  const Launcher run("cast", launch);
  by_type(op.from_type, [&](auto from) {
    by_type(op.to_type, [&](auto to) {
      map(run, op.count, Same{}, static_cast<decltype(to)*>(op.to),
          static_cast<const decltype(from)*>(op.from));
    });
  });
}

void add(const Add& op, const Launch& launch) {
  const Launcher run("add", launch);
  map(run, op.count, Sum{}, op.into, static_cast<const float*>(op.into), op.from);
}

void add_edges(const AddEdges& op, const Launch& launch) {
  const Launcher run("add_edges", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    map(run, op.count, Sum{}, static_cast<T*>(op.out), static_cast<const T*>(op.a),
        static_cast<const T*>(op.b));
  });
}

void regroup(const Regroup& op, const Launch& launch) {
  const Launcher run("regroup", launch);
  const int64_t count = op.rows * op.outer * op.inner * op.width;
  by_type(op.type, [&](auto element) {
    run({.blocks = divide_up(count, kMapThreads), .threads = kMapThreads}, regroup_kernel<decltype(element)>,
        op);
  });
}

void soft_cap(const SoftCap& op, const Launch& launch) {
  const Launcher run("soft_cap", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    map(run, op.count, Capped{op.cap}, static_cast<T*>(op.values), static_cast<const T*>(op.values));
  });
}

void fill_normal(const FillNormal& op, const Launch& launch) {
  const Launcher run("fill_normal", launch);
  run({.blocks = divide_up(op.first % 4 + op.count, 4 * kMapThreads), .threads = kMapThreads},
      fill_normal_kernel, op);
}

void fill_value(const FillValue& op, const Launch& launch) {
  const Launcher run("fill_value", launch);
  map(run, op.count, Constant{op.value}, op.values);
}

void count_nonfinite(const CountNonfinite& op, const Launch& launch) {
  const Launcher run("count_nonfinite", launch);
  static_assert(sizeof(unsigned long long) == sizeof(int64_t));
  run.fill_zero(op.count, sizeof(int64_t));
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    run({.blocks = divide_up(op.size, kCountThreads * kCountPerThread), .threads = kCountThreads},
        count_nonfinite_kernel<T>, op.size, static_cast<const T*>(op.values),
        reinterpret_cast<unsigned long long*>(op.count));
  });
}

void mark(const Mark& op, const Launch& launch) {
  const Launcher run("mark", launch);
  run({.blocks = 1, .threads = 1}, mark_kernel, op);
}

}  // namespace lockstep::kernels::cuda
