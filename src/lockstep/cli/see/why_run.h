// `lockstep why RUN` of a run whose folder is here: what limits it, or what ended it.
#pragma once

#include <string>

namespace lockstep::cli {

struct WhyOptions {
  bool json = false;
  bool replay = false;  // a step whose loss went wrong is computed again, to see which blocks changed most
};
int why_run(const std::string& folder, const WhyOptions& options);

}  // namespace lockstep::cli
