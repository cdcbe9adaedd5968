// The norm at the head of a segment: what "qkv", "up" and the final norm share.
#pragma once

#include "lockstep/model/segments/norm_linear.h"

namespace lockstep::model {

// Of norms whose weights' gradients are summed in pieces (NormOptions::pieces): what that takes, the gradient
// of the input, and the weights' own.
void add_pieces(SegmentPlan& plan, const NormOptions& options);
void backward_in_pieces(const Frame& f, kernels::NormBackward op, const NormOptions& options);
void weights_in_pieces(const Frame& f, kernels::NormWeightBackward op, const NormOptions& options);

class NormPart {
 public:
  NormPart(NormOptions options, DType type) : options_(std::move(options)), type_(type) {}

  std::vector<ParamSpec> params() const;
  // Edges, saved statistics, what backward_input reads and leaves. `keeps_sum`: the sum stays as the
  // "residual" edge; otherwise (final norm) it is only saved.
  void add_to(SegmentPlan& plan, int64_t rows, bool keeps_sum) const;

  void forward(const Frame& f, void* y, bool keeps_sum) const;
  // y as forward made it, from the sum that it left; writes the same statistics again.
  void again(const Frame& f, void* y, bool keeps_sum) const;
  // dy is the gradient of the normed value; writes din.* and left.dweight, left.dbias.
  void backward_input(const Frame& f, const void* dy, bool keeps_sum) const;
  void backward_weight(const Frame& f) const;
  int64_t forward_bytes(int64_t rows) const;

 private:
  Tensor sum(const Frame& f, bool keeps_sum) const;
  void norm(const Frame& f, kernels::NormForward n) const;  // n: what goes in and comes out
  bool has_mean() const { return options_.kind == kernels::NormKind::layer; }
  NormOptions options_;
  DType type_;
};

}  // namespace lockstep::model
