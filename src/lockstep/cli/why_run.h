// `lockstep why RUN` of a run whose folder is here: what limits it, or what ended it.
#pragma once

#include <string>

namespace lockstep::cli {

// The run folder that is meant: a folder, or the name of one in runs/; empty: none is.
std::string run_folder_named(const std::string& name);

int why_run(const std::string& folder, bool as_json);

}  // namespace lockstep::cli
