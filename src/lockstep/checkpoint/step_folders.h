// The folders of a run's checkpoints: their names, which are whole, and how old ones go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {

std::string checkpoints_folder(const std::string& run_folder);         // RUN/checkpoints
std::string step_folder(const std::string& run_folder, int64_t step);  // RUN/checkpoints/step-00000100
std::string step_name(int64_t step);                                   // step-00000100
std::optional<int64_t> step_of(const std::string& name);               // and back; nothing: another name

// Takes the manifest away first, so that a crash half-way leaves no folder that looks whole. Of a link
// only the link goes. Nothing there is no error. Returns 0, or minus the error's number.
int remove_checkpoint(const std::string& folder, const Disk& disk = system_disk());

// Folders without a manifest: saves that did not get to their end.
void remove_broken(const std::string& run_folder, const Disk& disk = system_disk());

// Of those older than `step`, what need not stay. What cannot be removed stays; the next save tries again.
void remove_older(const std::string& run_folder, int64_t step, const Retention& retention,
                  const Disk& disk = system_disk());

}  // namespace lockstep::checkpoint
