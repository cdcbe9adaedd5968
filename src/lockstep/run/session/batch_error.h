// The recipe's slices and strands contradict its batch or each other: LS0150, LS0151.
#pragma once

#include "lockstep/base/error.h"

namespace lockstep::run {

struct BatchContradictionError : base::ConfigError {
  using ConfigError::ConfigError;
};

}  // namespace lockstep::run
