// A linear map as three matrix products, for either way of storing the weight.
//
// Hugging Face keeps GPT-2's weights as [in, out] (Conv1D) and Llama's as [out, in] (Linear); we keep
// whatever the family keeps, so that checkpoints are plain copies.
#pragma once

#include "lockstep/kernels/table.h"
#include "lockstep/model/block.h"

namespace lockstep::model {

struct LinearMap {
  int64_t in = 0, out = 0;
  bool out_major = true;  // weight is [out, in]; false: [in, out]
  bool bias = false;
  DType type = DType::f32;

  // y = x W (+ bias), x is [rows, in].
  // With `before_gelu`, that gets it, and y gets gelu of it.
  void forward(const Frame& f, const void* x, const void* weight, const void* bias_values, void* y,
               int64_t rows, void* before_gelu = nullptr) const;
  // dx = dy W^T. With `gelu_at`, x was gelu of that, and dx gets the gradient of what stood before gelu.
  void backward_input(const Frame& f, const void* dy, const void* weight, void* dx, int64_t rows,
                      const void* gelu_at = nullptr) const;
  // dW (+)= x^T dy; fp32
  void backward_weight(const Frame& f, const void* x, const void* dy, void* dweight, int64_t rows,
                       bool accumulate) const;

  int64_t workspace(int64_t rows, const kernels::Kernels& kernels) const;  // the largest of the three
  Shape weight_shape() const { return out_major ? Shape{out, in} : Shape{in, out}; }
  Cost cost(int64_t rows, Part part) const;
};

}  // namespace lockstep::model
