// Between a session's memory and a checkpoint on disk.
#pragma once

#include <string>

#include "lockstep/run/session.h"

namespace lockstep::run {

// Copies everything to the host and writes a checkpoint of `step` steps; returns its folder.
std::string save_checkpoint(Session& session, const std::string& run_folder, int64_t step, int keep);

// Masters, moments and step state from a checkpoint of this run; returns the steps it holds. DataError names
// what is missing or has another shape.
int64_t load_checkpoint(Session& session, const std::string& checkpoint_folder);

// Only the masters, from a checkpoint or a Hugging Face folder.
void load_weights(Parameters& parameters, const std::string& folder);

// Hugging Face's config.json for gpt2 and llama; empty for other families.
std::string huggingface_config(const base::Recipe& recipe);

}  // namespace lockstep::run
