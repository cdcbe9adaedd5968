// The nonlinearity of a feed-forward part: alone, as GPT-2 has it, or as the gate of a gated linear unit, as
// Llama has it (with silu, SwiGLU). Each is a row of ActivationKind.
#pragma once

#include <type_traits>

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

enum class ActivationKind : uint8_t {
  gelu_tanh,     // x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3): as GPT-2
  gelu_erf,      // x Phi(x), Phi the normal distribution's: what GELU is by definition
  gelu_sigmoid,  // x sigmoid(1.702 x)
  relu,          // max(x, 0)
  relu_squared,  // max(x, 0)^2
  silu,          // x sigmoid(x)
};
constexpr ActivationKind kActivations[] = {ActivationKind::gelu_tanh,    ActivationKind::gelu_erf,
                                           ActivationKind::gelu_sigmoid, ActivationKind::relu,
                                           ActivationKind::relu_squared, ActivationKind::silu};

// Calls `with` with the kind as a constant, so that loops are compiled for each.
template <class With>
void by_kind(ActivationKind kind, With with) {
  using enum ActivationKind;
  switch (kind) {
    case gelu_tanh:
      return with(std::integral_constant<ActivationKind, gelu_tanh>{});
    case gelu_erf:
      return with(std::integral_constant<ActivationKind, gelu_erf>{});
    case gelu_sigmoid:
      return with(std::integral_constant<ActivationKind, gelu_sigmoid>{});
    case relu:
      return with(std::integral_constant<ActivationKind, relu>{});
    case relu_squared:
      return with(std::integral_constant<ActivationKind, relu_squared>{});
    case silu:
      return with(std::integral_constant<ActivationKind, silu>{});
  }
}

struct Activate {  // y = f(x)
  ActivationKind kind = ActivationKind::gelu_tanh;
  device::DType type = device::DType::f32;
  int64_t count = 0;
  const void* x = nullptr;
  void* y = nullptr;
};

struct ActivateBackward {  // dx = dy f'(x)
  ActivationKind kind = ActivationKind::gelu_tanh;
  device::DType type = device::DType::f32;
  int64_t count = 0;
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;  // may be the same memory as dy
};

struct Glu {  // y = f(gate) * up
  ActivationKind kind = ActivationKind::silu;
  device::DType type = device::DType::f32;
  int64_t rows = 0, width = 0;
  const void* gate_up = nullptr;  // [rows, 2 * width]: gate, then up
  void* y = nullptr;              // [rows, width]
  float* amax = nullptr;          // given: gets the largest magnitude of y, for a cast to fp8
};

struct GluBackward {
  ActivationKind kind = ActivationKind::silu;
  device::DType type = device::DType::f32;
  int64_t rows = 0, width = 0;
  const void* gate_up = nullptr;
  const void* dy = nullptr;  // [rows, width]
  void* dgate_up = nullptr;  // [rows, 2 * width]; may be the same memory as gate_up
  void* y = nullptr;         // [rows, width] or null: what forward gave, made again on the way
  float* amax = nullptr;     // given: gets the largest magnitude of dgate_up
};

}  // namespace lockstep::kernels
