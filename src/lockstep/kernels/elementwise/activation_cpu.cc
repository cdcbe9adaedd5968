#include "lockstep/kernels/elementwise/activation.h"

#include "lockstep/kernels/elementwise/curves_cpu.h"
#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

namespace {

// `with` is called with an element of the operation's type and its kind as a constant.
template <class Op, class With>
void with_type_and_kind(const Op& op, With with) {
  with_type(op.type, [&](auto tag) { by_kind(op.kind, [&](auto kind) { with(tag, kind); }); });
}

template <class F, class T>
void glu_row(const T* gate, const T* up, int64_t width, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float g = widen(gate[i]);
    y[i] = narrow<T>(F::value(g) * widen(up[i]));
  }
}

}  // namespace

void activate(const Activate& op, const Launch&) {
  with_type_and_kind(op, [&](auto tag, auto kind) {
    using T = decltype(tag);
    using F = Curve<kind.value>;
    const T* x = static_cast<const T*>(op.x);
    T* y = static_cast<T*>(op.y);
    for_blocks(op.count, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = narrow<T>(F::value(widen(x[i])));
    });
  });
}

void activate_backward(const ActivateBackward& op, const Launch&) {
  with_type_and_kind(op, [&](auto tag, auto kind) {
    using T = decltype(tag);
    using F = Curve<kind.value>;
    const T* x = static_cast<const T*>(op.x);
    const T* dy = static_cast<const T*>(op.dy);
    T* dx = static_cast<T*>(op.dx);
    for_blocks(op.count, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) dx[i] = narrow<T>(F::pull(widen(dy[i]), widen(x[i])));
    });
  });
}

void glu(const Glu& op, const Launch& launch) {
  with_type_and_kind(op, [&](auto tag, auto kind) {
    using T = decltype(tag);
    for_items(op.rows, op.width, [&](int64_t row) {
      const T* gate = static_cast<const T*>(op.gate_up) + row * 2 * op.width;
      glu_row<Curve<kind.value>>(gate, gate + op.width, op.width, static_cast<T*>(op.y) + row * op.width);
    });
  });
  if (op.amax != nullptr)
    fp8_amax({.rows = op.rows, .columns = op.width, .x = op.y, .amax = op.amax}, launch);
}

void glu_backward(const GluBackward& op, const Launch& launch) {
  with_type_and_kind(op, [&](auto tag, auto kind) {
    using T = decltype(tag);
    using F = Curve<kind.value>;
    for_items(op.rows, op.width, [&](int64_t row) {
      const T* gate = static_cast<const T*>(op.gate_up) + row * 2 * op.width;
      const T* up = gate + op.width;
      const T* dy = static_cast<const T*>(op.dy) + row * op.width;
      T* dgate = static_cast<T*>(op.dgate_up) + row * 2 * op.width;
      T* dup = dgate + op.width;
      if (op.y != nullptr) glu_row<F>(gate, up, op.width, static_cast<T*>(op.y) + row * op.width);
#pragma omp simd
      for (int64_t i = 0; i < op.width; ++i) {
        const float g = widen(gate[i]), u = widen(up[i]), gradient = widen(dy[i]);
        dgate[i] = narrow<T>(F::pull(gradient * u, g));
        dup[i] = narrow<T>(F::times(gradient, g));
      }
    });
  });
  if (op.amax != nullptr)
    fp8_amax({.rows = op.rows, .columns = 2 * op.width, .x = op.dgate_up, .amax = op.amax}, launch);
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
