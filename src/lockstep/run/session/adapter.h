// Adapters (LoRA) of a run: from a folder with PEFT's files into a recipe and a session, and what those files
// say of a run.
#pragma once

#include <string>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

// Rank, alpha, targets and what is trained beside them, as the adapter in tune.adapter has them: keys that
// the recipe leaves alone are set, others must agree (ConfigError 197).
void adopt_adapter(recipe::Resolved& resolved);

// What model.from stands for where it holds an adapter: merged weights, unless tune.adapter is that adapter.
checkpoint::Adapters under_adapter(const recipe::Recipe& recipe);

// The adapters' values, and those of weights that were trained beside them. CheckpointError 343 names what
// does not fit this model. Of a run's folder, from its newest checkpoint that can be used. Collective.
checkpoint::Taken load_adapter(Parameters& parameters, device::Device& device, const Ranks& ranks,
                               const model::Model& model, const std::string& folder);

// What adapter_config.json says of this run's adapters, on the model in folder `base`.
checkpoint::AdapterConfig adapter_config(const Plan& plan, const std::string& base);
// The model under them, as checkpoints name it.
checkpoint::Base base_of(const Session& session);

}  // namespace lockstep::run
