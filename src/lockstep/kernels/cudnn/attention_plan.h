// One pass of cuDNN's attention for one shape, built once and kept. The backward pass is the one that gives
// the same bits every time.
//
// cuDNN's deterministic backward pass wants scratch for the scores of all heads it is given at once, so a
// call goes over some samples and heads at a time; how many depends on the shape alone. Where the scores of a
// single key head are too many, it is refused: attention_pieces.h cuts such sequences.
#pragma once

#include "lockstep/kernels/attention/attention_plan.h"

namespace lockstep::kernels::cuda {

// Scratch for the scores of the backward pass: of the heads that are computed at once, and of a single key
// head, which is faster in few large pieces.
constexpr int64_t kScoreBytes = int64_t{1} << 30, kMostScoreBytes = 2 * kScoreBytes;

class CudnnAttention {
 public:
  // Null where cuDNN is absent or does not take this shape; `why_not` then says so.
  static const AttentionPlan* find(const AttentionPlanShape& shape, std::string* why_not = nullptr);

  // The two slow parts of the first find(), ahead of it and on any thread: the library, which needs no GPU,
  // and its handle for the current GPU.
  static void load();
  static void start();
};

}  // namespace lockstep::kernels::cuda
