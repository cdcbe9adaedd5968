// Finds the first place where a step stops being finite, by running it again, one instruction at a time.
#pragma once

#include <string>

#include "lockstep/run/session/session.h"

namespace lockstep::run {

// Not on pipeline ranks.
bool can_step_slowly(const Session& session);

// "first in slice 3, layer 7 (attention), while going forward: 12 of 65536 values of context". The update is
// not applied again: what is not finite switches it off.
std::string diagnose(Session& session, const kernels::StepInputs& inputs, const HostBatch& batch,
                     int64_t step);

}  // namespace lockstep::run
