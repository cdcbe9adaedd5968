// forecast.json and the receipt at the end of the run.
#pragma once

#include <string>

#include "lockstep/run/session/session_plan.h"

namespace lockstep::training {

// Writes what the plan foretells, from recipe, program and profile alone, and gives the line that compares it
// with what the run took: "forecast 120 ms per step, took 131 ...". Made when training is over, by the thread
// that trained: it takes no time from steps, and nobody else asks the device meanwhile. Empty where the
// machine was not measured, since then there is little to learn, and for models that a program brings, which
// would have to be built again. What goes wrong is told and ends nothing: the run is done.
std::string write_receipt(const run::Plan& plan, const std::string& folder);

}  // namespace lockstep::training
