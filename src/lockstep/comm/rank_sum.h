// Sums over ranks, element by element, in rank order; narrow floats are added in fp32 and rounded once.
#pragma once

#include "lockstep/device/tensor.h"

namespace lockstep::comm {

// to[t][i] = from[0][i] + from[1][i] + ... for i in [0, count), for every t. A target may be one of the
// sources.
void sum_ranks(device::DType type, const void* const* from, int sources, void* const* to, int targets,
               int64_t count);

}  // namespace lockstep::comm
