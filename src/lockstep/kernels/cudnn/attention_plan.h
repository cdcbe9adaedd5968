// cuDNN's attention for one shape, built once and kept: forward, and the backward pass that gives the same
// bits every time.
//
// cuDNN reads q, k and v where the projection wrote them, by strides. Its deterministic backward pass wants
// scratch for the scores of all heads it is given at once, so a call goes over `tile()` of the samples and
// heads at a time; how many depends on the shape alone.
#pragma once

#include <memory>
#include <string>

#include "lockstep/kernels/attention.h"

namespace lockstep::kernels::cuda {

class CudnnAttention {
 public:
  // Null where cuDNN is absent or does not take this shape; `why_not` then says so. The plan belongs to the
  // current GPU and is kept until the process ends.
  static const CudnnAttention* find(const AttentionShape& shape, std::string* why_not = nullptr);

  // The two slow parts of the first find(), ahead of it and on any thread: the library, which needs no GPU,
  // and its handle for the current GPU.
  static void load();
  static void start();

  virtual ~CudnnAttention() = default;
  virtual std::string name() const = 0;  // "cudnn 9.19.0"
  virtual int64_t workspace_bytes() const = 0;
  virtual void forward(const AttentionForward& op, const Launch& launch) const = 0;
  virtual void backward(const AttentionBackward& op, const Launch& launch) const = 0;
};

}  // namespace lockstep::kernels::cuda
