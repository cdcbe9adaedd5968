// GELU and SwiGLU, forward and backward: one pass over memory each.
#include "lockstep/kernels/activation.h"

#include <cmath>

#include "lockstep/kernels/fp8.cuh"
#include "lockstep/kernels/map.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr float kRoot2OverPi = 0.7978845608028654f;
constexpr float kCubic = 0.044715f;

// 1 / (1 + exp(-x)); kFast is exact enough for 16-bit results, in a fifth of the instructions.
template <bool kFast>
__device__ float sigmoid(float x) {
  return kFast ? __fdividef(1.0f, 1.0f + __expf(-x)) : 1.0f / (1.0f + expf(-x));
}

// With the tanh form's u, gelu(x) = x (1 + tanh u) / 2 = x sigmoid(2 u).
template <bool kFast>
struct GeluOf {
  __device__ float operator()(float x) const {
    return x * sigmoid<kFast>(2.0f * kRoot2OverPi * (x + kCubic * x * x * x));
  }
};

template <bool kFast>
struct GeluGradient {
  __device__ float operator()(float x, float dy) const {
    const float s = sigmoid<kFast>(2.0f * kRoot2OverPi * (x + kCubic * x * x * x));
    const float slope = 2.0f * kRoot2OverPi * (1.0f + 3.0f * kCubic * x * x);
    return dy * (s + x * s * (1.0f - s) * slope);
  }
};

template <class T>
constexpr bool kHalf = sizeof(T) == 2;

template <class T, int N>
__device__ Vec<T, N> swiglu_of(const Vec<T, N>& gate, const Vec<T, N>& up) {
  Vec<T, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float g = to_float(gate[j]);
    out[j] = from_float<T>(g * sigmoid<kHalf<T>>(g) * to_float(up[j]));
  }
  return out;
}

template <class T, int N>
__global__ void swiglu_kernel(int64_t count, int64_t width, const T* gate_up, T* y, float* amax) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * N;
  uint32_t top = 0;
  if (i < count) {
    const int64_t at = i + i / width * width;  // row * 2 * width + column
    const Vec<T, N> out = swiglu_of(load<N>(gate_up + at), load<N>(gate_up + at + width));
    store<N>(y + i, out);
    top = largest_bits(out);
  }
  if (amax != nullptr) raise_amax<kMapThreads>(top, amax);
}

template <class T, int N>
__device__ void swiglu_gradient(const Vec<T, N>& gate, const Vec<T, N>& up, const Vec<T, N>& dy,
                                Vec<T, N>& dgate, Vec<T, N>& dup) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float g = to_float(gate[j]), s = sigmoid<kHalf<T>>(g), dout = to_float(dy[j]);
    dgate[j] = from_float<T>(dout * to_float(up[j]) * s * (1.0f + g * (1.0f - s)));
    dup[j] = from_float<T>(dout * g * s);
  }
}

template <class T, int N>
__global__ void swiglu_backward_kernel(int64_t count, int64_t width, const T* gate_up, const T* dy,
                                       T* dgate_up, T* y, float* amax) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * N;
  uint32_t top = 0;
  if (i < count) {
    const int64_t at = i + i / width * width;
    const Vec<T, N> gate = load<N>(gate_up + at), up = load<N>(gate_up + at + width), d = load<N>(dy + i);
    Vec<T, N> dgate, dup;
    swiglu_gradient(gate, up, d, dgate, dup);
    store<N>(dgate_up + at, dgate);
    store<N>(dgate_up + at + width, dup);
    if (y != nullptr) store<N>(y + i, swiglu_of(gate, up));
    top = largest_bits(dup, largest_bits(dgate));
  }
  if (amax != nullptr) raise_amax<kMapThreads>(top, amax);
}

}  // namespace

void gelu(const Gelu& op, const Launch& launch) {
  const Launcher run("gelu", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    map(run, op.count, GeluOf<kHalf<T>>{}, static_cast<T*>(op.y), static_cast<const T*>(op.x));
  });
}

void gelu_backward(const GeluBackward& op, const Launch& launch) {
  const Launcher run("gelu_backward", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    map(run, op.count, GeluGradient<kHalf<T>>{}, static_cast<T*>(op.dx), static_cast<const T*>(op.x),
        static_cast<const T*>(op.dy));
  });
}

void swiglu(const Swiglu& op, const Launch& launch) {
  const Launcher run("swiglu", launch);
  if (op.amax != nullptr) run.fill_zero(op.amax, sizeof(float));
  const int64_t count = op.rows * op.width;
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    by_width<kWide<T>>(fits_vectors<T>(op.width, op.gate_up, op.y), [&](auto width) {
      constexpr int N = width.value;
      run({.blocks = divide_up(count, kMapThreads * N), .threads = kMapThreads}, swiglu_kernel<T, N>, count,
          op.width, static_cast<const T*>(op.gate_up), static_cast<T*>(op.y), op.amax);
    });
  });
}

void swiglu_backward(const SwigluBackward& op, const Launch& launch) {
  const Launcher run("swiglu_backward", launch);
  if (op.amax != nullptr) run.fill_zero(op.amax, sizeof(float));
  const int64_t count = op.rows * op.width;
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    by_width<kWide<T>>(fits_vectors<T>(op.width, op.gate_up, op.dy, op.dgate_up, op.y), [&](auto width) {
      constexpr int N = width.value;
      run({.blocks = divide_up(count, kMapThreads * N), .threads = kMapThreads}, swiglu_backward_kernel<T, N>,
          count, op.width, static_cast<const T*>(op.gate_up), static_cast<const T*>(op.dy),
          static_cast<T*>(op.dgate_up), static_cast<T*>(op.y), op.amax);
    });
  });
}

}  // namespace lockstep::kernels::cuda
