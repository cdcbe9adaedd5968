// Addends of one value, one for each part of a product's inner dimension, summed over a balanced tree in fp32
// and rounded once: what `batch.product_strands` promises. Whoever holds half of the addends sums those first
// and hands the sum over in fp32; the result has the same bits.
#pragma once

#include <cstdint>

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

constexpr int kMostAddends = 64;

// to[i] = tree over from[0][i], from[1][i], ...: ((x0 + x1) + (x2 + x3)) + ...
struct SumAddends {
  device::DType in = device::DType::f32, out = device::DType::f32;
  int64_t count = 0;  // elements
  int inputs = 0;     // a power of two
  const void* from[kMostAddends] = {};
  void* to = nullptr;  // may be one of the addends, where both types are the same
};

}  // namespace lockstep::kernels
