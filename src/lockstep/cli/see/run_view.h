// What commands that look at runs share: which run is meant, and a line about where it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/see/run_log.h"

namespace lockstep::cli {

// A run folder, or the name of one in runs/; empty: it is neither.
std::string run_folder_named(const std::string& name);

// Each as above; what is neither stays what it is.
std::vector<std::string> run_folders_named(std::vector<std::string> names);

// As the first, or the run in runs/ that wrote last where no name is given. ConfigError 109: there is none.
std::string wanted_run(const std::string& name, const std::string& command);

int64_t steps_wanted(const std::string& folder);  // run.steps of its config.toml; 0: not known

// "step 12/200  loss 2.3112  51.9 k tokens/s  ETA 1 m 07 s"; the last only while it trains.
std::string progress_text(const see::RunLog& log, int64_t steps, bool trains);

}  // namespace lockstep::cli
