// What `lockstep train` says beside the plan before the first step: what is not used or has no effect, and
// what another length does to a run that goes on.
#pragma once

#include <string>
#include <vector>

#include "lockstep/run/session/session.h"

namespace lockstep::cli {

// The plan's lines with warnings around them: a GPU that is left unused first, then the rest behind.
// `folder_given`: by --run.
std::string with_remarks(const std::string& plan_lines, const run::Plan& plan, bool folder_given);

// What a changed run.steps does to the learning rate of a run that goes on from that many steps of one of
// these checkpoints; empty: nothing, or it goes on from memory.
std::string change_of_length(const recipe::Recipe& now, const std::vector<std::string>& checkpoints,
                             int64_t step);

}  // namespace lockstep::cli
