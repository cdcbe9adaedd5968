// Runs one step of a session instruction by instruction and looks at what each gives. The step counts: behind
// it, weights and moments are those of the next.
#pragma once

#include "lockstep/data/loader.h"
#include "lockstep/replay/replayer.h"

namespace lockstep::replay {

struct ProbedStep {
  kernels::StepInputs inputs;
  const data::Batch& batch;
  Look look = Look::result;
};

SeenStep probe(run::Session& session, const ProbedStep& step);

}  // namespace lockstep::replay
