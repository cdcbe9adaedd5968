#include "lockstep/kernels/activation.h"

#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

void gelu(const Gelu& op, const Launch&) {
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    const T* x = static_cast<const T*>(op.x);
    T* y = static_cast<T*>(op.y);
    for_blocks(op.count, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const float value = widen(x[i]);
        y[i] = narrow<T>(value * gelu_parts(value).gate);
      }
    });
  });
}

void gelu_backward(const GeluBackward& op, const Launch&) {
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    const T* x = static_cast<const T*>(op.x);
    const T* dy = static_cast<const T*>(op.dy);
    T* dx = static_cast<T*>(op.dx);
    for_blocks(op.count, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const float value = widen(x[i]);
        const GeluParts parts = gelu_parts(value);
        const float slope = parts.gate + value * parts.gate * (1.0f - parts.gate) * parts.slope;
        dx[i] = narrow<T>(widen(dy[i]) * slope);
      }
    });
  });
}

namespace {

template <class T>
void swiglu_row(const T* gate, const T* up, int64_t width, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float g = widen(gate[i]);
    y[i] = narrow<T>(g * sigmoid(g) * widen(up[i]));
  }
}

}  // namespace

void swiglu(const Swiglu& op, const Launch& launch) {
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(op.rows, op.width, [&](int64_t row) {
      const T* gate = static_cast<const T*>(op.gate_up) + row * 2 * op.width;
      swiglu_row(gate, gate + op.width, op.width, static_cast<T*>(op.y) + row * op.width);
    });
  });
  if (op.amax != nullptr)
    fp8_amax({.rows = op.rows, .columns = op.width, .x = op.y, .amax = op.amax}, launch);
}

void swiglu_backward(const SwigluBackward& op, const Launch& launch) {
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(op.rows, op.width, [&](int64_t row) {
      const T* gate = static_cast<const T*>(op.gate_up) + row * 2 * op.width;
      const T* up = gate + op.width;
      const T* dy = static_cast<const T*>(op.dy) + row * op.width;
      T* dgate = static_cast<T*>(op.dgate_up) + row * 2 * op.width;
      T* dup = dgate + op.width;
      if (op.y != nullptr) swiglu_row(gate, up, op.width, static_cast<T*>(op.y) + row * op.width);
#pragma omp simd
      for (int64_t i = 0; i < op.width; ++i) {
        const float g = widen(gate[i]), u = widen(up[i]), s = sigmoid(g), gradient = widen(dy[i]);
        dgate[i] = narrow<T>(gradient * u * s * (1.0f + g * (1.0f - s)));
        dup[i] = narrow<T>(gradient * g * s);
      }
    });
  });
  if (op.amax != nullptr)
    fp8_amax({.rows = op.rows, .columns = 2 * op.width, .x = op.dgate_up, .amax = op.amax}, launch);
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
