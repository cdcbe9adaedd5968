// Checkpoints that cannot be used are named, and what is older and whole is offered.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/usable.h"

namespace lockstep::checkpoint {

using Say = std::function<void(const std::string& line)>;  // told for a person

// Says which of a run's checkpoints are damaged and newer than all complete ones, and that the newest of
// these, the first of `usable`, is taken instead. Returns how many were damaged: a save that was killed
// before its manifest was whole is not.
int name_damaged(const std::string& run_folder, const std::vector<std::string>& usable, const Say& say);

// Says which is the newest complete checkpoint of the same run that is older than this one, if there is any.
void offer_older(const std::string& checkpoint_folder, const Say& say);

// Reads what someone named: a checkpoint or model itself, or of a run the newest checkpoint that can be used.
// Each that cannot is named, with the one before it, which is tried next. Returns the folder that was read.
std::string read_newest(const std::string& named, const std::function<void(const std::string& folder)>& read,
                        const Say& say);

// What someone means who names `folder`, best first; newer checkpoints that are damaged are named.
std::vector<std::string> folders_to_read(const std::string& folder, const Say& say);

// Names the checkpoints that were passed over for the one that was taken.
void name_passed_over(const Taken& taken, const Say& say);

}  // namespace lockstep::checkpoint
