// A tensor as the kernels see it: a pointer, a type and a shape. It owns nothing.
//
// Memory belongs to the arena that the program's buffers are placed in (program/check.h), so a
// tensor is valid for exactly as long as the instruction that was handed it. Always dense, row-major.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace lockstep::device {

enum class DType : uint8_t { f32, bf16, f16, f64, i32, i64, u8 };

int64_t size_of(DType type);      // bytes of one element
const char* name_of(DType type);  // "bf16"

// Up to four dimensions, by value.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  int rank() const { return rank_; }
  int64_t operator[](int dimension) const { return sizes_[static_cast<size_t>(dimension)]; }
  int64_t numel() const;
  std::string to_string() const;  // "[256, 128]"
  bool operator==(const Shape& other) const = default;

 private:
  std::array<int64_t, 4> sizes_{};
  int rank_ = 0;
};

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  int64_t numel() const { return shape.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype); }
  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace lockstep::device
