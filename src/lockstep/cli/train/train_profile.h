// `lockstep train --profile FIRST:LAST`: its word, and the table of what was seen.
#pragma once

#include <string>

#include "lockstep/run/executor/profile.h"
#include "lockstep/train.h"

namespace lockstep::cli {

// "10:12", or "10" for one step; empty: none. ConfigError 109 for anything else.
TrainOptions::Steps read_profile(const std::string& text);

// The table, and where the trace is. Measures the device's ceilings first.
std::string profile_lines(const run::Session& session, const run::Profile& profile, const std::string& trace);

}  // namespace lockstep::cli
