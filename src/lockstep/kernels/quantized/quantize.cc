#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/kernels/quantized/quantized.h"
#include "lockstep/kernels/table.h"

namespace lockstep::kernels {

namespace {

constexpr int64_t kBlocksAtOnce = 512;  // a thread's turn
constexpr float kLargestFp8 = 448.0f;

struct Format {
  Quantized format;
  const char* name;
};
constexpr Format kFormats[] = {{Quantized::nf4, "nf4"}, {Quantized::fp8, "fp8"}};

// The level is the next above every middle between two levels that the value exceeds.
uint8_t nf4_code(float value) {
  int code = 0;
  for (int k = 0; k < 15; ++k) {
    const float middle = (kNf4Levels[k] + kNf4Levels[k + 1]) * 0.5f;
    code += value > middle ? 1 : 0;
  }
  return static_cast<uint8_t>(code);
}

// To nearest even; magnitudes are at most 448.
uint8_t e4m3_code(float value) {
  constexpr float kNormal = 0x1.0p-6f, kUnits = 0x1.0p+14f;  // kUnits: where fp32's last bit counts 2^-9
  const auto sign = static_cast<uint32_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::min(std::fabs(value), kLargestFp8);
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t normal = ((bits + (1u << 19) - 1 + (bits >> 20 & 1u)) >> 20) - (120u << 3);
  const uint32_t subnormal = std::bit_cast<uint32_t>(magnitude + kUnits) - std::bit_cast<uint32_t>(kUnits);
  return static_cast<uint8_t>(sign | (magnitude < kNormal ? subnormal : normal));
}

bool quantize_block(Quantized format, const float* values, int64_t count, uint8_t* block) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite &= std::isfinite(values[i]);
    largest = std::max(largest, std::fabs(values[i]));
  }
  if (!finite) return false;
  std::memcpy(block, &largest, 4);
  uint8_t* const codes = block + 4;
  std::fill_n(codes, block_bytes(format) - 4, uint8_t{0});
  for (int64_t i = 0; i < count; ++i) {
    // A division: with the reciprocal, the largest of a block of tiny numbers would not come out as 1.
    const float scaled = largest > 0 ? values[i] / largest : 0.0f;
    if (format == Quantized::fp8) {
      codes[i] = e4m3_code(scaled * kLargestFp8);
    } else {
      codes[i / 2] = static_cast<uint8_t>(codes[i / 2] | nf4_code(scaled) << (i % 2 == 0 ? 4 : 0));
    }
  }
  return true;
}

}  // namespace

Quantized quantized_of(std::string_view name) {
  for (const Format& one : kFormats) {
    if (name == one.name) return one.format;
  }
  return Quantized::none;
}

const char* name_of(Quantized format) {
  for (const Format& one : kFormats) {
    if (format == one.format) return one.name;
  }
  return "none";
}

bool quantize(Quantized format, const float* values, int64_t count, void* blocks) {
  LS_ASSERT(format != Quantized::none);
  auto* const to = static_cast<uint8_t*>(blocks);
  const int64_t all = blocks_of(count);
  std::atomic<bool> finite = true;
  device::run_items(
      (all + kBlocksAtOnce - 1) / kBlocksAtOnce, device::thread_count(), [&](int64_t turn, int) {
        for (int64_t b = turn * kBlocksAtOnce; b < std::min(all, (turn + 1) * kBlocksAtOnce); ++b) {
          const int64_t first = b * kQuantizedBlock;
          if (!quantize_block(format, values + first, std::min(kQuantizedBlock, count - first),
                              to + b * block_bytes(format)))
            finite = false;
        }
      });
  return finite;
}

bool round_to(Quantized format, float* values, int64_t count) {
  std::vector<uint8_t> blocks(static_cast<size_t>(quantized_bytes(format, count)));
  const bool finite = quantize(format, values, count, blocks.data());
  kernels_for(device::Kind::cpu).dequantize({format, count, blocks.data(), device::DType::f32, values}, {});
  return finite;
}

}  // namespace lockstep::kernels
