// Results of an attention part that were computed on their own, brought into those of the parts before it:
// what cuDNN, which knows nothing of parts, leaves to us.
#pragma once

#include "lockstep/kernels/attention_part.h"

namespace lockstep::kernels::cuda {

// The part's own result in op.shape.type, [samples * q_len, heads * head_dim], and its log-sum-exp.
void merge_part(const AttentionPart& op, const void* out, const float* lse, const Launch& launch);

// The part's own gradients in the same type: dq as `out` above, dkv [samples * kv_len, dk | dv].
void add_part(const AttentionPartBackward& op, const void* dq, const void* dkv, const Launch& launch);

}  // namespace lockstep::kernels::cuda
