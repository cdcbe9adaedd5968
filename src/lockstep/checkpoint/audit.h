// Is a checkpoint whole, to the last bit? `lockstep inspect --check` asks, and a run before it calls itself
// done.
#pragma once

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {

// Reads every byte. Of a run's checkpoint: no file of a numbered set is missing, nor the optimizer's where
// the recipe has one, the index names nothing that is not there, and the weights have the manifest's
// params_hash. DataError 303, 305 or 322 says what is wrong.
void audit(const Opened& opened);

}  // namespace lockstep::checkpoint
