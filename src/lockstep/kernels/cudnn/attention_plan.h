// cuDNN's attention for one shape, built once and kept: forward, and the backward pass that gives the same
// bits every time.
//
// cuDNN reads q, k and v where they lie, by strides. Its deterministic backward pass wants scratch for the
// scores of all heads it is given at once, so a call goes over `tile()` of the samples and heads at a time;
// how many depends on the shape alone.
#pragma once

#include <memory>
#include <string>

#include "lockstep/kernels/attention_part.h"

namespace lockstep::kernels::cuda {

// A part on its own: what it gives is written, not merged.
struct CudnnShape {
  AttentionPartShape part;
  int64_t dq_stride = 0, dkv_stride = 0;  // elements between rows of dq, and of dk and dv
};

class CudnnAttention {
 public:
  // Null where cuDNN is absent or does not take this shape; `why_not` then says so. The plan belongs to the
  // current GPU and is kept until the process ends.
  static const CudnnAttention* find(const CudnnShape& shape, std::string* why_not = nullptr);

  // The two slow parts of the first find(), ahead of it and on any thread: the library, which needs no GPU,
  // and its handle for the current GPU.
  static void load();
  static void start();

  struct Forward {
    const void *q, *k, *v;
    void* out;   // [samples * q_len, heads * head_dim]
    float* lse;  // [samples, heads, q_len]
  };
  struct Backward {
    const void *q, *k, *v, *out, *dout;
    const float* lse;  // of all keys, as `out` is
    void *dq, *dk, *dv;
  };

  virtual ~CudnnAttention() = default;
  virtual std::string name() const = 0;  // "cudnn 9.19.0"
  virtual int64_t workspace_bytes() const = 0;
  virtual void forward(const Forward& op, const Launch& launch) const = 0;
  virtual void backward(const Backward& op, const Launch& launch) const = 0;
};

}  // namespace lockstep::kernels::cuda
