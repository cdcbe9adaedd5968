// Which of a run's checkpoints to read: the newest that can be used, whatever is wrong with those after it.
//
//     for_first_usable(model_folders("runs/first"), [&](const std::string& folder) { read(folder); });
//
// Sizes tell little: most damage is found while bytes are read. So whoever reads is ready to begin again with
// the one before, and says so.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {

// What someone means who names `folder`, best first: a run's complete checkpoints, newest first, else the
// folder itself. DataError 324: a run that has none. What lies in an object store (s3://bucket/runs/a) is
// fetched first: of a run its newest complete checkpoint.
std::vector<std::string> model_folders(const std::string& folder);

// Whether the error says that a checkpoint cannot be read or believed, so that another one may do.
bool is_unusable(const base::Error& error);

struct Taken {
  std::string folder;
  std::vector<std::string> passed_over;  // a sentence for each that could not be used, newest first
};
// Calls `read` until it returns without such an error; `passing` hears what was wrong with one before the
// next is tried. When none can be used, throws what was wrong with the newest.
Taken for_first_usable(
    const std::vector<std::string>& folders, const std::function<void(const std::string& folder)>& read,
    const std::function<void(const std::string& why, const std::string& next)>& passing = {});

// Whether a save in this folder once came to its end, as far as can be told without any manifest.
bool has_saved(const std::string& run_folder);

}  // namespace lockstep::checkpoint
