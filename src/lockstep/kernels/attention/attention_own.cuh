// Our own attention kernels: for GPUs, types and shapes that cuDNN does not take.
#pragma once

#include "lockstep/kernels/attention/attention.h"
#include "lockstep/kernels/attention/attention_part.h"

namespace lockstep::kernels::cuda {

void own_attention_forward(const AttentionForward& op, const Launch& launch);
void own_attention_backward(const AttentionBackward& op, const Launch& launch);
int64_t own_attention_workspace(const AttentionShape& shape);

// These need no workspace.
void own_attention_part(const AttentionPart& op, const Launch& launch);
void own_attention_part_backward(const AttentionPartBackward& op, const Launch& launch);

}  // namespace lockstep::kernels::cuda
