// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::http {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {764,
       "Cannot listen",
       {"Another program, or an earlier start of this one, has the port.",
        "The address is not one of this machine.", "Ports below 1024 need permission."},
       {"--port 0 takes a free port.", "--host 127.0.0.1 is always there."}},
  };
}

}  // namespace lockstep::http
