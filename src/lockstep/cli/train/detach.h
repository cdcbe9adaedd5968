// `lockstep train ... --detach`: the same command again, in a session of its own, so that it outlives the
// terminal.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// `words`: those of train, --detach among them. Returns when the run has done its first step, with 0, or when
// it has ended before, with its exit code and what it said. What it prints goes to FOLDER/logs/console.log.
int detach(const std::vector<std::string>& words, const std::string& folder, bool as_json);

}  // namespace lockstep::cli
