// From a checkpoint or a Hugging Face folder into a session's memory.
#pragma once

#include <string>

#include "lockstep/checkpoint/usable.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

// Masters, moments and step state from a checkpoint of this run; returns the steps it holds. DataError names
// what is missing or has another shape.
int64_t load_checkpoint(Session& session, const std::string& checkpoint_folder);

// The sizes of the model that model.from names, where its folder has a config.json: keys that the recipe
// leaves alone are set, others must agree (ConfigError 177, 178).
void adopt_model(recipe::Resolved& resolved);

// Only the masters and statistics, from a checkpoint or a Hugging Face folder; of a run's folder, from its
// newest checkpoint that can be used. `family` knows other names of weights. Collective.
checkpoint::Taken load_weights(Parameters& parameters, device::Device& device, const Ranks& ranks,
                               const std::string& family, const std::string& folder);

}  // namespace lockstep::run
