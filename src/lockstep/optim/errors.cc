// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::optim {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {140,
       "Unknown schedule",
       {"optim.schedule is misspelled."},
       {"`lockstep explain optim.schedule` lists them."}},
      {141,
       "An optimizer that does not exist",
       {"optim.name, or kind in optim.groups, is misspelled."},
       {"`lockstep explain optim.name` lists them."}},
  };
}

}  // namespace lockstep::optim
