// The nonlinearities, alone and as gates, forward and backward: one pass over memory each.
#include "lockstep/kernels/elementwise/activation.h"

#include <cmath>

#include "lockstep/kernels/elementwise/map.cuh"
#include "lockstep/kernels/fp8/fp8.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr float kRoot2OverPi = 0.7978845608028654f;
constexpr float kCubic = 0.044715f;
constexpr float kRootHalf = 0.7071067811865476f;
constexpr float kDensityAt0 = 0.3989422804014327f;  // of the normal distribution
constexpr float kSteepness = 1.702f;

// e^x and 1 / (1 + e^-x); kFast is exact enough for 16-bit results, in a fifth of the instructions.
template <bool kFast>
__device__ float power(float x) {
  return kFast ? __expf(x) : expf(x);
}
template <bool kFast>
__device__ float sigmoid(float x) {
  return kFast ? __fdividef(1.0f, 1.0f + __expf(-x)) : 1.0f / (1.0f + expf(-x));
}

// f(x), d * f(x) and d * f'(x), as curves_cpu.h has them.
template <ActivationKind, bool kFast>
struct Curve;

// With the tanh form's u, gelu(x) = x (1 + tanh u) / 2 = x sigmoid(2 u).
template <bool kFast>
struct Curve<ActivationKind::gelu_tanh, kFast> {
  static __device__ float value(float x) {
    return x * sigmoid<kFast>(2.0f * kRoot2OverPi * (x + kCubic * x * x * x));
  }
  static __device__ float times(float d, float x) { return d * value(x); }
  static __device__ float pull(float d, float x) {
    const float s = sigmoid<kFast>(2.0f * kRoot2OverPi * (x + kCubic * x * x * x));
    const float slope = 2.0f * kRoot2OverPi * (1.0f + 3.0f * kCubic * x * x);
    return d * (s + x * s * (1.0f - s) * slope);
  }
};

template <bool kFast>
struct Curve<ActivationKind::gelu_erf, kFast> {
  static __device__ float below(float x) { return 0.5f * erfcf(-x * kRootHalf); }
  static __device__ float value(float x) { return x * below(x); }
  static __device__ float times(float d, float x) { return d * value(x); }
  static __device__ float pull(float d, float x) {
    return d * (below(x) + x * kDensityAt0 * power<kFast>(-0.5f * x * x));
  }
};

template <bool kFast>
struct Curve<ActivationKind::gelu_sigmoid, kFast> {
  static __device__ float value(float x) { return x * sigmoid<kFast>(kSteepness * x); }
  static __device__ float times(float d, float x) { return d * value(x); }
  static __device__ float pull(float d, float x) {
    const float s = sigmoid<kFast>(kSteepness * x);
    return d * (s + kSteepness * x * s * (1.0f - s));
  }
};

// What is not a number stays so.
template <bool kFast>
struct Curve<ActivationKind::relu, kFast> {
  static __device__ float value(float x) { return x < 0.0f ? 0.0f : x; }
  static __device__ float times(float d, float x) { return d * value(x); }
  static __device__ float pull(float d, float x) { return x <= 0.0f ? 0.0f : d; }
};

template <bool kFast>
struct Curve<ActivationKind::relu_squared, kFast> {
  static __device__ float value(float x) { return x < 0.0f ? 0.0f : x * x; }
  static __device__ float times(float d, float x) { return d * value(x); }
  static __device__ float pull(float d, float x) { return x <= 0.0f ? 0.0f : d * (2.0f * x); }
};

template <bool kFast>
struct Curve<ActivationKind::silu, kFast> {
  static __device__ float value(float x) { return x * sigmoid<kFast>(x); }
  static __device__ float times(float d, float x) { return d * x * sigmoid<kFast>(x); }
  static __device__ float pull(float d, float x) {
    const float s = sigmoid<kFast>(x);
    return d * s * (1.0f + x * (1.0f - s));
  }
};

template <class F>
struct ValueOf {
  __device__ float operator()(float x) const { return F::value(x); }
};

template <class F>
struct GradientOf {
  __device__ float operator()(float x, float dy) const { return F::pull(dy, x); }
};

template <class T>
constexpr bool kHalf = sizeof(T) == 2;

template <class F, class T, int N>
__device__ Vec<T, N> glu_of(const Vec<T, N>& gate, const Vec<T, N>& up) {
  Vec<T, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float g = to_float(gate[j]);
    out[j] = from_float<T>(F::value(g) * to_float(up[j]));
  }
  return out;
}

template <class F, class T, int N>
__global__ void glu_kernel(int64_t count, int64_t width, const T* gate_up, T* y, float* amax) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * N;
  uint32_t top = 0;
  if (i < count) {
    const int64_t at = i + i / width * width;  // row * 2 * width + column
    const Vec<T, N> out = glu_of<F>(load<N>(gate_up + at), load<N>(gate_up + at + width));
    store<N>(y + i, out);
    top = largest_bits(out);
  }
  if (amax != nullptr) raise_amax<kMapThreads>(top, amax);
}

template <class F, class T, int N>
__device__ void glu_gradient(const Vec<T, N>& gate, const Vec<T, N>& up, const Vec<T, N>& dy,
                             Vec<T, N>& dgate, Vec<T, N>& dup) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float g = to_float(gate[j]), dout = to_float(dy[j]);
    dgate[j] = from_float<T>(F::pull(dout * to_float(up[j]), g));
    dup[j] = from_float<T>(F::times(dout, g));
  }
}

template <class F, class T, int N>
__global__ void glu_backward_kernel(int64_t count, int64_t width, const T* gate_up, const T* dy, T* dgate_up,
                                    T* y, float* amax) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * N;
  uint32_t top = 0;
  if (i < count) {
    const int64_t at = i + i / width * width;
    const Vec<T, N> gate = load<N>(gate_up + at), up = load<N>(gate_up + at + width), d = load<N>(dy + i);
    Vec<T, N> dgate, dup;
    glu_gradient<F>(gate, up, d, dgate, dup);
    store<N>(dgate_up + at, dgate);
    store<N>(dgate_up + at + width, dup);
    if (y != nullptr) store<N>(y + i, glu_of<F>(gate, up));
    top = largest_bits(dup, largest_bits(dgate));
  }
  if (amax != nullptr) raise_amax<kMapThreads>(top, amax);
}

// `with` is called with an element of the operation's type and its curve.
template <class Op, class With>
void by_type_and_curve(const Op& op, With with) {
  by_type(op.type, [&](auto element) {
    by_kind(op.kind, [&](auto kind) { with(element, Curve<kind.value, kHalf<decltype(element)>>{}); });
  });
}

}  // namespace

void activate(const Activate& op, const Launch& launch) {
  const Launcher run("activate", launch);
  by_type_and_curve(op, [&](auto element, auto curve) {
    using T = decltype(element);
    map(run, op.count, ValueOf<decltype(curve)>{}, static_cast<T*>(op.y), static_cast<const T*>(op.x));
  });
}

void activate_backward(const ActivateBackward& op, const Launch& launch) {
  const Launcher run("activate_backward", launch);
  by_type_and_curve(op, [&](auto element, auto curve) {
    using T = decltype(element);
    map(run, op.count, GradientOf<decltype(curve)>{}, static_cast<T*>(op.dx), static_cast<const T*>(op.x),
        static_cast<const T*>(op.dy));
  });
}

void glu(const Glu& op, const Launch& launch) {
  const Launcher run("glu", launch);
  if (op.amax != nullptr) run.fill_zero(op.amax, sizeof(float));
  const int64_t count = op.rows * op.width;
  by_type_and_curve(op, [&](auto element, auto curve) {
    using T = decltype(element);
    by_width<kWide<T>>(fits_vectors<T>(op.width, op.gate_up, op.y), [&](auto width) {
      constexpr int N = width.value;
      run({.blocks = divide_up(count, kMapThreads * N), .threads = kMapThreads},
          glu_kernel<decltype(curve), T, N>, count, op.width, static_cast<const T*>(op.gate_up),
          static_cast<T*>(op.y), op.amax);
    });
  });
}

void glu_backward(const GluBackward& op, const Launch& launch) {
  const Launcher run("glu_backward", launch);
  if (op.amax != nullptr) run.fill_zero(op.amax, sizeof(float));
  const int64_t count = op.rows * op.width;
  by_type_and_curve(op, [&](auto element, auto curve) {
    using T = decltype(element);
    by_width<kWide<T>>(fits_vectors<T>(op.width, op.gate_up, op.dy, op.dgate_up, op.y), [&](auto width) {
      constexpr int N = width.value;
      run({.blocks = divide_up(count, kMapThreads * N), .threads = kMapThreads},
          glu_backward_kernel<decltype(curve), T, N>, count, op.width, static_cast<const T*>(op.gate_up),
          static_cast<const T*>(op.dy), static_cast<T*>(op.dgate_up), static_cast<T*>(op.y), op.amax);
    });
  });
}

}  // namespace lockstep::kernels::cuda
