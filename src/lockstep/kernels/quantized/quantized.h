// Weights that nobody trains, in 4 or 8 bits: QLoRA's NF4, or fp8.
//
// 64 values in a row are a block: the largest magnitude among them in fp32, then a code for each value. A
// code stands for a level between -1 and 1, so that value = level * largest. A tensor's blocks follow its
// elements as they are stored; the last one may be partly empty.
//
//     nf4   16 levels at the quantiles of a normal distribution, two codes a byte, the first in the high
//           bits: 4.5 bits a weight
//     fp8   the 253 numbers of e4m3, divided by 448: 8.5 bits a weight
//
// Both have the levels 1 and -1, so the largest of a block comes back exactly, and quantizing what was
// dequantized to fp32 gives the same codes again.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

enum class Quantized : uint8_t { none, nf4, fp8 };
Quantized quantized_of(std::string_view name);  // "nf4", "fp8"; none of anything else
const char* name_of(Quantized format);

constexpr int64_t kQuantizedBlock = 64;  // values

constexpr int64_t block_bytes(Quantized format) {
  return 4 + kQuantizedBlock * (format == Quantized::nf4 ? 4 : 8) / 8;
}
constexpr int64_t blocks_of(int64_t values) { return (values + kQuantizedBlock - 1) / kQuantizedBlock; }
constexpr int64_t quantized_bytes(Quantized format, int64_t values) {
  return blocks_of(values) * block_bytes(format);
}

constexpr float kNf4Levels[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// values[i] = level * largest in fp32, rounded once to `type`.
struct Dequantize {
  Quantized format = Quantized::nf4;
  int64_t count = 0;
  const void* blocks = nullptr;  // aligned to 4 bytes
  device::DType type = device::DType::f32;
  void* values = nullptr;
};

// To the nearest level, on the host. False: a value is infinite or not a number, which no block can hold.
bool quantize(Quantized format, const float* values, int64_t count, void* blocks);

// What is left of values that are kept so: quantized and back, in place. False as above.
bool round_to(Quantized format, float* values, int64_t count);

}  // namespace lockstep::kernels
