// Datasets that know what the 32-bit words of their samples are, so that floats are not read as token
// numbers.
#pragma once

#include "lockstep/device/tensor.h"

namespace lockstep::data {

class TypedWords {
 public:
  virtual ~TypedWords() = default;
  virtual device::DType input_type() const = 0;  // i32 or f32
  virtual device::DType label_type() const = 0;
};

}  // namespace lockstep::data
