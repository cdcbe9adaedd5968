// Small passes over flat memory: casts, sums of gradient strands, random initial values, checks.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

struct Cast {  // any of f32, bf16, f16 to any other; round to nearest even
  device::DType from_type = device::DType::f32, to_type = device::DType::f32;
  int64_t count = 0;
  const void* from = nullptr;
  void* to = nullptr;
};

struct Add {  // into[i] = into[i] + from[i], fp32: the inner nodes of the strand tree
  int64_t count = 0;
  float* into = nullptr;
  const float* from = nullptr;
};

struct AddEdges {  // out = round(a + b), in the edge type: a residual that is not fused into a norm
  device::DType type = device::DType::f32;
  int64_t count = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;  // may be a or b
};

// y[row, j, i] = x[row, i, j]: a fused projection that keeps q, k and v of each head together becomes all of
// q, all of k, all of v, and back.
struct Regroup {
  device::DType type = device::DType::f32;
  int64_t rows = 0, outer = 0, inner = 0, width = 0;  // x is [rows, outer, inner, width]
  const void* x = nullptr;
  void* y = nullptr;  // [rows, inner, outer, width]; not x
};

struct SoftCap {  // values = cap * tanh(values / cap), in place
  device::DType type = device::DType::f32;
  int64_t count = 0;
  void* values = nullptr;
  float cap = 0;
};

struct FillNormal {  // values[i] is a function of (seed, stream, first + i) alone
  int64_t count = 0;
  float* values = nullptr;
  float mean = 0, deviation = 1;
  uint64_t seed = 0, stream = 0;
  int64_t first = 0;
};

struct FillValue {
  int64_t count = 0;
  float* values = nullptr;
  float value = 0;
};

struct CountNonfinite {  // *count = how many values are infinite or not a number
  device::DType type = device::DType::f32;
  int64_t size = 0;
  const void* values = nullptr;
  int64_t* count = nullptr;
};

// *word = value when the stream gets there: how far a device is, for a host that does not wait for it.
struct Mark {
  uint32_t* word = nullptr;  // host memory (Device::allocate_host)
  uint32_t value = 0;
};

}  // namespace lockstep::kernels
