// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::verify {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {621,
       "Unsuitable golden run",
       {"--against names a run of another recipe, or a folder without one.",
        "--keep names a folder that already exists."},
       {"Verify the recipe the golden run was made from, with the same --steps and the same ranks.",
        "Store a new golden run with --keep in a new folder."}},
      {622,
       "Run cannot be compared",
       {"The folder contains no metrics or no checkpoint, or they are damaged.", "The run was interrupted."},
       {"Use the folder created by --keep for --against.", "Create the golden run again."}},
      {623,
       "Cannot store the golden run",
       {"The disk is full, or the folder is not writable."},
       {"Choose another folder for --keep."}},
  };
}

}  // namespace lockstep::verify
