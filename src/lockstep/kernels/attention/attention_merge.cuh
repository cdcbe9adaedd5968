// Results of an attention part that were computed on their own, brought into those of the parts before it:
// what cuDNN, which knows nothing of parts, leaves to us.
#pragma once

#include "lockstep/kernels/attention/attention_part.h"

namespace lockstep::kernels::cuda {

// The part's own result in op.shape.type, [samples * q_len, heads * head_dim], and its log-sum-exp.
void merge_part(const AttentionPart& op, const void* out, const float* lse, const Launch& launch);

// Rows of `type`, added to rows of fp32, or written over them. Widths and strides are multiples of 4, and
// rows begin at 16 bytes (8 of a 16-bit type).
struct AddRows {
  device::DType type = device::DType::f32;
  int64_t rows = 0, width = 0;
  const void* from = nullptr;
  int64_t from_stride = 0;
  float* into = nullptr;
  int64_t into_stride = 0;
  bool write = false;
};
void add_rows(const AddRows& op, const Launch& launch);

// Rows of fp32, rounded to rows of `type`; of the same sizes as above.
struct RoundRows {
  device::DType type = device::DType::f32;
  int64_t rows = 0, width = 0;
  const float* from = nullptr;
  int64_t from_stride = 0;
  void* to = nullptr;
  int64_t to_stride = 0;
};
void round_rows(const RoundRows& op, const Launch& launch);

}  // namespace lockstep::kernels::cuda
