#include "lockstep/kernels/quantized/quantized.h"

#include "lockstep/kernels/fp8/fp8_numbers_cpu.h"
#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

struct Levels {
  float of[256];
};

LS_INLINE Levels fp8_levels() {
  Levels levels;
  for (int code = 0; code < 256; ++code)
    levels.of[code] = widen_fp8<Fp8::e4m3>(static_cast<uint8_t>(code)) / 448.0f;
  return levels;
}

LS_INLINE float largest_of(const uint8_t* block) {
  float largest;
  __builtin_memcpy(&largest, block, 4);
  return largest;
}

template <class T>
LS_INLINE void nf4_block(const uint8_t* block, int64_t count, T* to) {
  const float largest = largest_of(block);
  for (int64_t i = 0; i < count; ++i) {
    const int code = block[4 + i / 2] >> (i % 2 == 0 ? 4 : 0) & 15;
    to[i] = narrow<T>(kNf4Levels[code] * largest);
  }
}

template <class T>
LS_INLINE void fp8_block(const Levels& levels, const uint8_t* block, int64_t count, T* to) {
  const float largest = largest_of(block);
  for (int64_t i = 0; i < count; ++i) to[i] = narrow<T>(levels.of[block[4 + i]] * largest);
}

}  // namespace

void dequantize(const Dequantize& op, const Launch&) {
  const Levels levels = op.format == Quantized::fp8 ? fp8_levels() : Levels{};
  const auto* blocks = static_cast<const uint8_t*>(op.blocks);
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    T* to = static_cast<T*>(op.values);
    for_items(blocks_of(op.count), kQuantizedBlock, [&](int64_t b) {
      const int64_t first = b * kQuantizedBlock, count = smaller(kQuantizedBlock, op.count - first);
      const uint8_t* block = blocks + b * block_bytes(op.format);
      if (op.format == Quantized::fp8) {
        fp8_block(levels, block, count, to + first);
      } else {
        nf4_block(block, count, to + first);
      }
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
