// From a checkpoint or a Hugging Face folder into a session's memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/usable.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

// Masters, moments and step state from a checkpoint of this run; returns the steps it holds. DataError names
// what is missing or has another shape.
int64_t load_checkpoint(Session& session, const std::string& checkpoint_folder);

// The sizes of the model that model.from names, where its folder has a config.json: keys that the recipe
// leaves alone are set, others must agree (ConfigError 177, 178).
void adopt_model(recipe::Resolved& resolved);

// The TorchScript file that is the model: model.from itself, or what the run began with whose folder it
// names. Empty: a model of a family.
std::string module_file_of(const std::string& from);

// Only the masters and statistics, from a checkpoint or a Hugging Face folder; of a run's folder, from its
// newest checkpoint that can be used. `family` knows other names of weights. `adapters`: what a folder with
// an adapter stands for. The model's own adapters are left as they are. Collective.
checkpoint::Taken load_weights(Parameters& parameters, device::Device& device, const Ranks& ranks,
                               const std::string& family, const std::string& folder,
                               checkpoint::Adapters adapters = checkpoint::Adapters::merged);

// Pieces of tensors from a folder to where they are held. Not collective.
void read_held(device::Device& device, const checkpoint::Opened& from, std::vector<Parameters::Saved> held,
               checkpoint::HashSums* hashes = nullptr);
// Reading is each rank's own; then either all ranks go on with the folder or none does.
void all_or_none(const Ranks& ranks, const std::string& folder, const std::function<void()>& read);

}  // namespace lockstep::run
