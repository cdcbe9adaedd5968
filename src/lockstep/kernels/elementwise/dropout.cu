// Dropout: four neighbouring elements share one Philox draw, and nothing is kept of it.
#include "lockstep/kernels/elementwise/dropout.h"

#include "lockstep/base/philox.h"
#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int N>
__global__ void dropout_kernel(Dropout op) {
  const int64_t q = op.first / 4 + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (q * 4 >= op.first + op.count) return;
  const T* x = static_cast<const T*>(op.x);
  T* y = static_cast<T*>(op.y);
  const base::Random4 random =
      base::site_random(op.inputs->seed, op.inputs->step, op.slice, op.site, static_cast<uint64_t>(q));
  const uint32_t words[4] = {random.x, random.y, random.z, random.w};
  const float scale = 1.0f / (1.0f - op.rate);
#pragma unroll
  for (int word = 0; word < 4; word += N) {
    const int64_t i = q * 4 + word - op.first;
    if (i < 0 || i >= op.count) continue;  // the first and the last draw may reach beyond this piece
    Vec<T, N> values = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const bool keep = base::unit_float(words[word + j]) >= op.rate;
      values[j] = from_float<T>(keep ? to_float(values[j]) * scale : 0.0f);
    }
    store<N>(y + i, values);
  }
}

// Columns of wider rows: neighbours here need not share a draw, so that each element makes its own.
template <class T>
__global__ void dropout_columns_kernel(Dropout op) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= op.count) return;
  const int64_t number = op.first + i / op.width * op.row + i % op.width;
  const base::Random4 random = base::site_random(op.inputs->seed, op.inputs->step, op.slice, op.site,
                                                 static_cast<uint64_t>(number / 4));
  const uint32_t words[4] = {random.x, random.y, random.z, random.w};
  const float scale = 1.0f / (1.0f - op.rate);
  const bool keep = base::unit_float(words[number % 4]) >= op.rate;
  const T x = static_cast<const T*>(op.x)[i];
  static_cast<T*>(op.y)[i] = from_float<T>(keep ? to_float(x) * scale : 0.0f);
}

}  // namespace

void dropout(const Dropout& op, const Launch& launch) {
  const Launcher run("dropout", launch);
  if (op.width > 0) {
    by_type(op.type, [&](auto element) {
      run({.blocks = divide_up(op.count, kThreads), .threads = kThreads},
          dropout_columns_kernel<decltype(element)>, op);
    });
    return;
  }
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kBytes = kVectorAlignment<T, 4>;
    const bool vectors =
        op.first % 4 == 0 && op.count % 4 == 0 && is_aligned(kBytes, op.x) && is_aligned(kBytes, op.y);
    by_width<4>(vectors, [&](auto width) {
      run({.blocks = divide_up(op.first % 4 + op.count, 4 * kThreads), .threads = kThreads},
          dropout_kernel<T, width.value>, op);
    });
  });
}

}  // namespace lockstep::kernels::cuda
