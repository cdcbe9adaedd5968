// `lockstep why RUN` of a run whose folder is here: what limits it, or what ended it.
#pragma once

#include <string>

namespace lockstep::cli {

int why_run(const std::string& folder, bool as_json);

}  // namespace lockstep::cli
