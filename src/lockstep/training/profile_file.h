// The trace of the steps that were profiled, in the run folder.
#pragma once

#include <string>

#include "lockstep/run/executor/profile.h"
#include "lockstep/run/session/session.h"

namespace lockstep::training {

// Every rank calls it. Ranks write a trace each, and the first joins those that it finds in its folder into
// trace/profile.json, which is what is returned.
std::string keep_profile(const run::Session& session, const run::Profile& profile, const std::string& folder);

}  // namespace lockstep::training
