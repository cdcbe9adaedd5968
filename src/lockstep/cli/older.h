// Checkpoints that cannot be used are named, and what is older and whole is offered.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/usable.h"

namespace lockstep::cli {

// Remarks on a run's damaged checkpoints that are newer than all complete ones, and on the newest of these,
// the first of `usable`, which is taken instead. Returns how many were damaged: a save that was killed before
// its manifest was whole is not.
int name_damaged(const std::string& run_folder, const std::vector<std::string>& usable);

// Remarks on the newest complete checkpoint of the same run that is older than this one, if there is any.
void offer_older(const std::string& checkpoint_folder);

// Reads what someone named: a checkpoint or model itself, or of a run the newest checkpoint that can be used.
// Each that cannot is named, with the one before it, which is tried next. Returns the folder that was read.
std::string read_newest(const std::string& named, const std::function<void(const std::string& folder)>& read);

// What someone means who names `folder`, best first, with a remark on newer checkpoints that are damaged.
std::vector<std::string> folders_to_read(const std::string& folder);

// Remarks on the checkpoints that were passed over for the one that was taken.
void name_passed_over(const checkpoint::Taken& taken);

}  // namespace lockstep::cli
