// Dropout: four neighbouring elements share one Philox draw, and nothing is kept of it.
#include "lockstep/kernels/dropout.h"

#include "lockstep/base/philox.h"
#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int N>
__global__ void dropout_kernel(int64_t count, const T* x, T* y, float rate, uint32_t slice, uint32_t site,
                               const StepInputs* inputs) {
  const int64_t q = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (q * 4 >= count) return;
  const base::Random4 random =
      base::site_random(inputs->seed, inputs->step, slice, site, static_cast<uint64_t>(q));
  const uint32_t words[4] = {random.x, random.y, random.z, random.w};
  const float scale = 1.0f / (1.0f - rate);
#pragma unroll
  for (int first = 0; first < 4; first += N) {
    const int64_t i = q * 4 + first;
    if (i >= count) return;
    Vec<T, N> values = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const bool keep = base::unit_float(words[first + j]) >= rate;
      values[j] = from_float<T>(keep ? to_float(values[j]) * scale : 0.0f);
    }
    store<N>(y + i, values);
  }
}

}  // namespace

void dropout(const Dropout& op, const Launch& launch) {
  const Launcher run("dropout", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kBytes = kVectorAlignment<T, 4>;
    by_width<4>(op.count % 4 == 0 && is_aligned(kBytes, op.x) && is_aligned(kBytes, op.y), [&](auto width) {
      run({.blocks = divide_up(op.count, 4 * kThreads), .threads = kThreads}, dropout_kernel<T, width.value>,
          op.count, static_cast<const T*>(op.x), static_cast<T*>(op.y), op.rate, op.slice, op.site,
          op.inputs);
    });
  });
}

}  // namespace lockstep::kernels::cuda
