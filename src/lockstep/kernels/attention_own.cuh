// Our own attention kernels: for GPUs, types and shapes that cuDNN does not take.
#pragma once

#include "lockstep/kernels/attention.h"

namespace lockstep::kernels::cuda {

void own_attention_forward(const AttentionForward& op, const Launch& launch);
void own_attention_backward(const AttentionBackward& op, const Launch& launch);
int64_t own_attention_workspace(const AttentionShape& shape);

}  // namespace lockstep::kernels::cuda
