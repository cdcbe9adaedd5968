// What a recipe would take at a target: the forecast that `lockstep plan` would make for its machines.
#pragma once

#include <string>
#include <vector>

#include "lockstep/jobs/place.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::cli {

// Where the catalogue has the place's machine: names it for run.budget (LOCKSTEP_MACHINE), and sets time
// limit and disk if the user has not. Sentences for the user: what was set, or why there is no forecast.
std::vector<std::string> fill_from_forecast(jobs::Place& place, const recipe::Resolved& resolved);

}  // namespace lockstep::cli
