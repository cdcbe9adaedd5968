// What a step is given: its batch and its numbers, functions of the recipe and the step alone.
#pragma once

#include "lockstep/data/loader.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

HostBatch host_batch(const data::Batch& batch);
data::LoaderOptions loader_options(const Session& session, int64_t first_step);
kernels::StepInputs step_inputs(const Plan& plan, const data::Batch& batch, int64_t step);  // counted from 0

}  // namespace lockstep::run
