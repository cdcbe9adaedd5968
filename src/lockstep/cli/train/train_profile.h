// `lockstep train --profile FIRST:LAST`: what is kept of the steps that were looked at, and what is said.
#pragma once

#include <string>

#include "lockstep/run/executor/profile.h"
#include "lockstep/run/training/trainer.h"

namespace lockstep::cli {

// "10:12", or "10" for one step. ConfigError 109 for anything else.
void read_profile(const std::string& text, run::TrainOptions& options);
// ConfigError 109 for steps that a run of so many does not have.
void check_profile(const run::TrainOptions& options, int64_t steps);

// The trace into the run folder; every rank calls it. Ranks write one each, and the first joins those that
// it finds in its folder into trace/profile.json.
void keep_profile(const run::Session& session, const run::Profile& profile, const std::string& folder);

// The table, and where the trace is. Measures the device's ceilings first.
std::string profile_lines(const run::Session& session, const run::Profile& profile,
                          const std::string& folder);

}  // namespace lockstep::cli
