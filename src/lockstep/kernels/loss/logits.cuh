// Rows of logits by vectors, also where the vocabulary does not fill the last one of a row.
#pragma once

#include <cmath>

#include "lockstep/kernels/vector.cuh"

namespace lockstep::kernels::cuda {

// Columns i to i + N of a row. Beyond the vocabulary there are no logits: -infinity has the probability 0.
template <class T, int N>
__device__ inline Vec<T, N> load_logits(const T* logits, int64_t i, int64_t vocab) {
  Vec<T, N> values = load<N>(logits + i);
  if (i + N > vocab) {
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (i + j >= vocab) values[j] = from_float<T>(-INFINITY);
  }
  return values;
}

// By what a soft cap multiplies the gradient of a logit that it gave; beyond the vocabulary there is none.
__device__ inline float cap_slope(float logit, float cap) {
  if (cap == 0 || logit == -INFINITY) return 1.0f;
  return 1.0f - (logit / cap) * (logit / cap);
}

}  // namespace lockstep::kernels::cuda
