// The nonlinearities: GELU (tanh form, as GPT-2) and SwiGLU (as Llama).
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

struct Gelu {
  device::DType type = device::DType::f32;
  int64_t count = 0;
  const void* x = nullptr;
  void* y = nullptr;
};

struct GeluBackward {
  device::DType type = device::DType::f32;
  int64_t count = 0;
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;  // may be the same memory as dy
};

struct Swiglu {  // y = silu(gate) * up
  device::DType type = device::DType::f32;
  int64_t rows = 0, width = 0;
  const void* gate_up = nullptr;  // [rows, 2 * width]: gate, then up
  void* y = nullptr;              // [rows, width]
  float* amax = nullptr;          // given: gets the largest magnitude of y, for a cast to fp8
};

struct SwigluBackward {
  device::DType type = device::DType::f32;
  int64_t rows = 0, width = 0;
  const void* gate_up = nullptr;
  const void* dy = nullptr;  // [rows, width]
  void* dgate_up = nullptr;  // [rows, 2 * width]; may be the same memory as gate_up
  void* y = nullptr;         // [rows, width] or null: what forward gave, made again on the way
  float* amax = nullptr;     // given: gets the largest magnitude of dgate_up
};

}  // namespace lockstep::kernels
