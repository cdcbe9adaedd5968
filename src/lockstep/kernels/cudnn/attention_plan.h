// One pass of cuDNN's attention for one shape, built once and kept. The backward pass is the one that gives
// the same bits every time.
//
// cuDNN reads every operand where it lies, by strides. Its deterministic backward pass wants scratch for the
// scores of all heads it is given at once, so a call goes over some samples and heads at a time; how many
// depends on the shape alone. Where the scores of a single key head are too many, it is refused:
// attention_pieces.h cuts such sequences.
#pragma once

#include <string>

#include "lockstep/kernels/attention/attention_part.h"

namespace lockstep::kernels::cuda {

enum class Pass { forward, backward };

// A part on its own: what it gives is written, not merged. Strides are elements between rows, and for lse
// between heads.
struct CudnnShape {
  AttentionPartShape part;
  Pass pass = Pass::forward;
  int64_t out_stride = 0, lse_stride = 0;
  int64_t dq_stride = 0, dkv_stride = 0;  // of the backward pass
};

// Scratch for the scores of the backward pass: of the heads that are computed at once, and of a single key
// head, which is faster in few large pieces.
constexpr int64_t kScoreBytes = int64_t{1} << 30, kMostScoreBytes = 2 * kScoreBytes;

class CudnnAttention {
 public:
  // Null where cuDNN is absent or does not take this shape; `why_not` then says so. The plan belongs to the
  // current GPU and is kept until the process ends.
  static const CudnnAttention* find(const CudnnShape& shape, std::string* why_not = nullptr);

  // The two slow parts of the first find(), ahead of it and on any thread: the library, which needs no GPU,
  // and its handle for the current GPU.
  static void load();
  static void start();

  // Forward writes out and lse. Backward reads them, and dout, and writes dq, dk and dv; `out` and `lse` may
  // be of more keys than it is given.
  struct Operands {
    const void *q, *k, *v;
    const void* out;
    const float* lse;
    const void* dout = nullptr;
    void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  };

  virtual ~CudnnAttention() = default;
  virtual std::string name() const = 0;  // "cudnn 9.19.0"
  virtual int64_t workspace_bytes() const = 0;
  virtual void run(const Operands& operands, const Launch& launch) const = 0;
};

}  // namespace lockstep::kernels::cuda
