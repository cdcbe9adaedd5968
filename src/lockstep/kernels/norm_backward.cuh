// norm_backward in one walk over memory, for the widths and types that training uses.
#pragma once

#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/norm.h"

namespace lockstep::kernels::cuda {

// Whether it takes this; a question of shape, type and alignment. Otherwise two passes do it.
bool fits_one_walk(const NormBackward& op);
void norm_backward_one_walk(const NormBackward& op, const Launcher& run);

}  // namespace lockstep::kernels::cuda
