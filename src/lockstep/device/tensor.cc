#include "lockstep/device/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"

namespace lockstep::device {

int64_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

const char* name_of(DType type) {
  static constexpr const char* kNames[] = {"fp32", "bf16", "fp16", "fp64", "i32", "i64", "u8"};
  return kNames[static_cast<int>(type)];
}

Shape::Shape(std::initializer_list<int64_t> sizes) {
  LS_ASSERT(sizes.size() <= sizes_.size());
  for (int64_t size : sizes) sizes_[static_cast<size_t>(rank_++)] = size;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= sizes_[static_cast<size_t>(i)];
  return n;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(sizes_.begin(), sizes_.begin() + rank_, ", "));
}

}  // namespace lockstep::device
