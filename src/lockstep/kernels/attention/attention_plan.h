// One pass of attention for one shape by somebody else's kernels: cuDNN's or FlashAttention's.
//
// A plan reads every operand where it lies, by strides, and gives the same bits every time. Whoever has one
// keeps it until the process ends; it belongs to the GPU that was current when it was found.
#pragma once

#include <string>
#include <tuple>

#include "lockstep/kernels/attention/attention_part.h"

namespace lockstep::kernels {

enum class AttentionPass { forward, backward };

// A part on its own: what it gives is written, not merged. Strides are elements between rows, and for lse
// between heads.
struct AttentionPlanShape {
  AttentionPartShape part;
  AttentionPass pass = AttentionPass::forward;
  int64_t out_stride = 0, lse_stride = 0;
  int64_t dq_stride = 0, dkv_stride = 0;  // of the backward pass
  auto key() const {                      // what tells shapes apart
    const AttentionPartShape& s = part;
    return std::tuple(pass, s.type, s.samples, s.q_len, s.kv_len, s.heads, s.kv_heads, s.head_dim, s.causal,
                      s.q_stride, s.kv_stride, s.scores.window, s.scores.softcap, s.scores.scale, s.distance,
                      s.documents, out_stride, lse_stride, dq_stride, dkv_stride);
  }
  bool operator<(const AttentionPlanShape& other) const { return key() < other.key(); }
};

class AttentionPlan {
 public:
  // Forward writes out and lse. Backward reads them, and dout, and writes dq, dk and dv; `out` and `lse` may
  // be of more keys than it is given.
  struct Operands {
    const void *q, *k, *v;
    const void* out;
    const float* lse;
    const void* dout = nullptr;
    void *dq = nullptr, *dk = nullptr, *dv = nullptr;
    const int32_t* offsets = nullptr;  // of Documents, where the shape has some
  };

  virtual ~AttentionPlan() = default;
  virtual std::string name() const = 0;  // "cudnn 9.19.0"
  virtual int64_t workspace_bytes() const = 0;
  virtual void run(const Operands& operands, const Launch& launch) const = 0;
};

}  // namespace lockstep::kernels
