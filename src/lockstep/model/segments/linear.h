// A linear map as three matrix products, for either way of storing the weight.
//
// Hugging Face keeps GPT-2's weights as [in, out] (Conv1D) and Llama's as [out, in] (Linear); we keep
// whatever the family keeps, so that checkpoints are plain copies.
//
// With `fp8`, the products read fp8 copies of x, dy and the weight (kernels/fp8/fp8.h) and everything else
// stays as it is. The weight is cast once a step by prepare(), x by forward, dy by backward_input;
// backward_weight reads the transposed copies that these leave, and x and dy themselves need not be kept. The
// copies are values of the segment's plan: add_to() declares them.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/kernels/table.h"
#include "lockstep/model/block.h"
#include "lockstep/model/segments/adapter.h"

namespace lockstep::model {

struct Fp8Products {
  kernels::Fp8Scaling scaling =
      kernels::Fp8Scaling::tensor;                 // of x and dy; `block` means squares for weights
  kernels::Fp8 gradients = kernels::Fp8::e5m2;     // of dy; x and weights are e4m3
  bool fast_forward = true, fast_backward = true;  // sums (Fp8Gemm::fast_sum)
};

struct LinearMap {
  int64_t in = 0, out = 0;
  bool out_major = true;  // weight is [out, in]; false: [in, out]
  bool bias = false;
  DType type = DType::f32;
  std::optional<Fp8Products> fp8{};
  // Above `out` where that many columns are odd enough to make products slow, as GPT-2's 50257 are: then y
  // and dy have rows of so many values, and a copy of the weight with rows of zeros behind it is made once a
  // step. The columns beyond `out` mean nothing in y, and must be zeros in dy. Only with out_major.
  int64_t padded_out = 0;
  // Behind it or before it: what forward applies when it is asked to, and whose slope backward_input does.
  kernels::ActivationKind curve = kernels::ActivationKind::gelu_tanh;
  bool at_once = false;  // the segment does all three products in its forward (a loss), and keeps nothing
  // What they give is added before the curve; not with fp8. Null: none. Shared by copies of the map, which
  // never change them.
  std::shared_ptr<const MapAdapters> adapters{};

  // Whether a slice of so many rows is multiplied in fp8; the single tokens of `generate` are not.
  bool in_fp8(int64_t rows) const { return fp8 && rows % kernels::kFp8Multiple == 0; }
  // What backward_weight needs: `x` and `dy` as the plan names them ("in.act", "dout.hidden"), or copies.
  void add_to(SegmentPlan& plan, int64_t rows, const std::string& x, const std::string& dy) const;
  // The weight's copies; a segment with a map calls it from its own prepare().
  void prepare(const Frame& f) const;

  // y = x W (+ bias), x is [rows, in].
  // With `before_curve`, that gets it, and y gets the curve of it. `amax`: of x, where it is known already.
  void forward(const Frame& f, const void* x, const void* weight, const void* bias_values, void* y,
               int64_t rows, void* before_curve = nullptr, const float* amax = nullptr) const;
  // dx = dy W^T. With `curve_at`, x was the curve of that, and dx gets the gradient of what stood before it.
  // `amax`: of dy, where it is known already.
  void backward_input(const Frame& f, const void* dy, const void* weight, void* dx, int64_t rows,
                      const void* curve_at = nullptr, const float* amax = nullptr) const;
  // dW (+)= x^T dy; fp32. Of the weight alone: the gradients of adapters are adapters->backward_weight().
  void backward_weight(const Frame& f, const void* x, const void* dy, void* dweight, int64_t rows,
                       bool accumulate) const;

  // Whether it is worth telling forward or backward_input the largest magnitude: all values share a scale.
  bool wants_amax(int64_t rows) const { return in_fp8(rows) && fp8->scaling == kernels::Fp8Scaling::tensor; }
  bool pads() const { return padded_out > out; }
  int64_t row_of_y() const { return pads() ? padded_out : out; }
  int64_t workspace(int64_t rows, const kernels::Kernels& kernels) const;  // the largest of the three
  Shape weight_shape() const { return out_major ? Shape{out, in} : Shape{in, out}; }
  Cost cost(int64_t rows, Part part) const;
};

}  // namespace lockstep::model
