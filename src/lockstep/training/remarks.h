// What is said beside the plan before the first step: what is not used or has no effect, and what another
// length does to a run that goes on.
#pragma once

#include <string>
#include <vector>

#include "lockstep/training/request.h"

namespace lockstep::training {

// Tells the observer the plan, with warnings around it: a GPU that is left unused first, the rest behind.
// A process that only saves plans nothing, and is told so without a warning.
void say_planned(const Planned& planned, const Request& request);

// What a changed run.steps does to the learning rate of a run that goes on from that many steps of one of
// these checkpoints; empty: nothing, or it goes on from memory.
std::string change_of_length(const recipe::Recipe& now, const std::vector<std::string>& checkpoints,
                             int64_t step);

}  // namespace lockstep::training
