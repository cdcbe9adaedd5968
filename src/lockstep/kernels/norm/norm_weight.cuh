// Sums over rows: the part of norm_backward that belongs to weight and bias.
#pragma once

#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/norm/norm.h"

namespace lockstep::kernels::cuda {

// Writes op.partial_dweight and, where given, op.partial_dbias.
void norm_weight_partials(const NormBackward& op, const Launcher& run);

}  // namespace lockstep::kernels::cuda
