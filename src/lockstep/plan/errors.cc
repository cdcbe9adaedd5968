// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::plan {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {181,
       "No such machine to price for",
       {"The name is misspelt, or the machine is not in the list."},
       {"Use one of the names in the message; docs/layouts.md says what is known of each."}},
      {182,
       "Words that are no layout",
       {"A word of --layouts is misspelt, stands twice, or has a value that it cannot have.",
        "A word needs another: zero needs data, sequence needs tensor, schedule needs pipeline."},
       {"Write layouts like data=4,zero=3 or pipeline=2,schedule=gpipe, with blanks between them.",
        "docs/verify.md lists the words."}},
      {183,
       "No layout that fits",
       {"parallel.auto tried every layout of the ranks that were started, and each needs more memory than a "
        "rank has.",
        "Sizes that the recipe settles (parallel.tensor and others) leave no way to deal the ranks out."},
       {"Start more ranks, or make slices smaller with a larger batch.slices.",
        "Leave the keys of [parallel] at their defaults, so that more layouts are tried."}},
  };
}

}  // namespace lockstep::plan
