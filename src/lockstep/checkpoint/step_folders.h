// The folders of a run's checkpoints: their names, which are whole, and how old ones go.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>

namespace lockstep::checkpoint {

std::string checkpoints_folder(const std::string& run_folder);         // RUN/checkpoints
std::string step_folder(const std::string& run_folder, int64_t step);  // RUN/checkpoints/step-00000100

// Takes the manifest away first, so that a crash half-way leaves no folder that looks whole. Of a link
// only the link goes. Nothing there is no error.
std::error_code remove_checkpoint(const std::string& folder);

// Folders without a manifest: saves that did not get to their end.
void remove_broken(const std::string& run_folder);

// Of those older than `step`, all but the newest keep - 1. What cannot be removed stays; the next save tries
// again.
void remove_older(const std::string& run_folder, int64_t step, int keep);

}  // namespace lockstep::checkpoint
