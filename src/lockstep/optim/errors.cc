// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::optim {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {140,
       "Unknown schedule",
       {"optim.schedule is misspelled."},
       {"`lockstep explain optim.schedule` lists them."}},
      {141, "Unknown optimizer", {"optim.name is misspelled."}, {"Use adamw, sgd or lion."}},
  };
}

}  // namespace lockstep::optim
