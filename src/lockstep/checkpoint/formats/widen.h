// Stored elements as fp32: exact for fp32, bf16 and fp16, down to the last subnormal and NaN payload. And
// back, rounded to the nearest, ties to even.
#pragma once

#include <cstdint>

#include "lockstep/device/tensor.h"

namespace lockstep::checkpoint {

bool can_widen(device::DType type);

// `from` need not be aligned: a file's tensors follow each other byte by byte.
void widen(const void* from, device::DType type, int64_t count, float* to);

// Returns how many finite values are too large for the type and became infinite.
int64_t narrow(const float* from, int64_t count, device::DType type, void* to);

}  // namespace lockstep::checkpoint
