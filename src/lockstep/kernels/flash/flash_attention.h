// FlashAttention-4 on Hopper: the backward pass is deterministic, and its scratch grows with the length of
// the sequence, not with its square.
//
// Key tiles add their share to a query tile's gradient in fp32, one after the other, by turns that depend on
// the shape alone; likewise the query heads that share a key head. What was compiled for which heads is in
// the library's table (flash_abi.h): a shape that is not there is refused, and others compute it. Windows
// skip the tiles that they leave out; window and soft cap are arguments of a kernel, so one serves every
// model.
#pragma once

#include "lockstep/kernels/attention/attention_plan.h"

namespace lockstep::kernels::cuda {

class FlashAttention {
 public:
  // Null where the library is absent or has no kernel for this shape; `why_not` then says so.
  static const AttentionPlan* find(const AttentionPlanShape& shape, std::string* why_not = nullptr);

  // Opens the library ahead of the first find(); needs no GPU.
  static void load();
};

}  // namespace lockstep::kernels::cuda
