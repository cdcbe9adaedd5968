// Rows of the table of optimizers that have files of their own. Internal to the folder.
#pragma once

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

OptimizerKind muon();

}  // namespace lockstep::optim
