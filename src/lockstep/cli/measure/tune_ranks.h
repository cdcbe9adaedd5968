// lockstep tune --nproc N: the same question on several ranks, each trial a short run of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/recipe/schema.h"
#include "lockstep/run/tools/tune.h"

namespace lockstep::cli {

// As run::tune(), in the recipe's own layout of so many ranks of this machine. Slices and strands that the
// ranks do not allow are left out. ConfigError: the recipe cannot be run on so many ranks.
std::vector<run::Trial> tune_on_ranks(const recipe::Resolved& resolved, int ranks, int64_t steps,
                                      const std::function<void(const std::string&)>& say);

}  // namespace lockstep::cli
