// Checkpoints that cannot be used are named, and what is older and whole is offered.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// Remarks on a run's damaged checkpoints that are newer than all complete ones, and on the newest of these,
// the first of `usable`, which is taken instead. Returns how many were damaged: a save that was killed before
// its manifest was whole is not.
int name_damaged(const std::string& run_folder, const std::vector<std::string>& usable);

// Remarks on the newest complete checkpoint of the same run that is older than this one, if there is any.
void offer_older(const std::string& checkpoint_folder);

// Where to look for a model when someone names `folder`: checkpoint::model_folder, and a remark on newer
// ones that are damaged.
std::string folder_to_read(const std::string& folder);

}  // namespace lockstep::cli
