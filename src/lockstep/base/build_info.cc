#include "lockstep/base/build_info.h"

#ifndef LOCKSTEP_COMMIT
#define LOCKSTEP_COMMIT "unknown"
#define LOCKSTEP_MODIFIED 0
#endif

namespace lockstep::base {

const char* source_commit() { return LOCKSTEP_COMMIT; }
bool source_modified() { return LOCKSTEP_MODIFIED != 0; }

}  // namespace lockstep::base
