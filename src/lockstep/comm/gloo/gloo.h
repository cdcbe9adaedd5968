// What liblockstep_torch.so exports for the Gloo engine: one C name, looked up by dlsym (gloo.cc).
#pragma once

#include "lockstep/comm/engine.h"

namespace lockstep::comm {

// Ownership passes to the caller; throws as Engine::make does.
extern "C" Group* lockstep_gloo_group(const GroupOptions& options, Store& store);

}  // namespace lockstep::comm
