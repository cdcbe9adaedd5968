// Checks a launch's scratch memory before a kernel touches it.
#pragma once

#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

// Throws Bug, naming the operation, when the caller handed less than the op's *_workspace() asked for.
void require_workspace(const Launch& launch, int64_t bytes, const char* operation);

}  // namespace lockstep::kernels
