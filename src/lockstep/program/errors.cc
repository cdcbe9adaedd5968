// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::program {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {130,
       "every-K without a usable K",
       {"memory.recompute = \"every-K\" groups K blocks; K is at least 1."},
       {"Write every-2, or use full or none."}},
      {131,
       "A segment that the model does not have",
       {"memory.recompute lists segments by name."},
       {"Take names from the list in the message; `lockstep explain program` shows them at work."}},
      {180,
       "No such pipeline schedule",
       {"parallel.schedule, or the schedule= of a layout, is misspelt or belongs to another trainer."},
       {"Use gpipe, 1f1b, interleaved or zero-bubble; docs/layouts.md says when to use which."}},
  };
}

}  // namespace lockstep::program
