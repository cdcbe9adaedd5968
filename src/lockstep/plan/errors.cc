// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::plan {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {181,
       "Unknown machine for the cost model",
       {"The name is misspelled, or the machine is not in the list."},
       {"Use one of the names in the message."}},
      {182,
       "Invalid layout",
       {"A setting in --layouts is misspelled, given twice, or has an invalid value.",
        "A setting needs another one: zero needs data, sequence needs tensor, schedule needs pipeline."},
       {"Write layouts like data=4,zero=3 or pipeline=2,schedule=gpipe, separated by spaces.",
        "docs/verify.md lists the settings."}},
      {183,
       "No layout fits",
       {"parallel.auto tried every layout of the started ranks, and each needs more memory than a rank has.",
        "Sizes fixed in the recipe (parallel.tensor and others) leave no possible layout."},
       {"Start more ranks, or use smaller slices with a larger batch.slices.",
        "Leave the keys of [parallel] at their defaults, so more layouts are tried."}},
  };
}

}  // namespace lockstep::plan
