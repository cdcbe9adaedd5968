// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::program {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {130,
       "Invalid every-K",
       {"memory.recompute = \"every-K\" groups K blocks; K must be at least 1."},
       {"Write every-2, or use full or none."}},
      {131,
       "Unknown segment",
       {"memory.recompute lists segments by name."},
       {"Use names from the list in the message; `lockstep explain program` shows where they run."}},
      {180,
       "Unknown pipeline schedule",
       {"parallel.schedule, or schedule= in a layout, is misspelled or not supported."},
       {"Use gpipe, 1f1b, interleaved or zero-bubble; docs/layouts.md says when to use each."}},
  };
}

}  // namespace lockstep::program
