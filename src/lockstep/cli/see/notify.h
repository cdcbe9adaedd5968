// `train --notify`: a process beside the run that tells a webhook what happens to it, whatever becomes of the
// run itself. Training waits for nothing.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// ConfigError 766: no address where it should be.
void start_notifier(const std::string& where, const std::string& folder);

// `lockstep notify FOLDER MORE...` as a process of its own, which writes to logs/notify.log and ends after
// this one. Returns its number.
int start_beside(const std::string& folder, const std::vector<std::string>& more);
void take_signals();  // in that process: from now on SIGTERM reaches it

}  // namespace lockstep::cli
