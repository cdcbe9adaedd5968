// What the kernels of a GPU ask for, where there is none to ask: a table with sizes of scratch and no
// kernels.
//
// The sizes are those of the kernels that a current GPU would choose (FlashAttention or cuDNN by the same
// rule, cuBLASLt's recommended workspace), from what they were seen to ask for; absent_test.cc has the
// figures.
#pragma once

#include "lockstep/kernels/table.h"

namespace lockstep::kernels {

const Kernels& absent_cuda_kernels();

}  // namespace lockstep::kernels
