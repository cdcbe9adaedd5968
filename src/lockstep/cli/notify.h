// `train --notify`: a process beside the run that tells a webhook what happens to it, whatever becomes of the
// run itself. Training waits for nothing.
#pragma once

#include <string>

namespace lockstep::cli {

// ConfigError 766: no address where it should be.
void start_notifier(const std::string& where, const std::string& folder);

}  // namespace lockstep::cli
