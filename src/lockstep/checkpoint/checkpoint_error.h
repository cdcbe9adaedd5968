// A checkpoint, or a folder of weights, that cannot be read or believed (LS03xx): another one may do.
#pragma once

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {

struct CheckpointError : base::DataError {
  using DataError::DataError;
};

}  // namespace lockstep::checkpoint
