// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::verify {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {621,
       "A golden run that does not suit",
       {"--against names a run that was made from another recipe, or a folder without one.",
        "--keep names a folder that is already there."},
       {"Verify the recipe that the golden run was made from, with the same --steps and the same ranks.",
        "Store a new golden run with --keep in a new folder."}},
      {622,
       "A run that cannot be compared",
       {"The folder holds no metrics or no checkpoint, or they are damaged.", "The run was ended half-way."},
       {"Give --against the folder that --keep made.", "Make the golden run again."}},
      {623,
       "The golden run cannot be stored",
       {"The disk is full, or the folder may not be written."},
       {"Choose another folder for --keep."}},
  };
}

}  // namespace lockstep::verify
