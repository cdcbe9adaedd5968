// What can be said against a recipe before anything is opened, and against its device once that is known.
#pragma once

#include "lockstep/run/session/session_plan.h"

namespace lockstep::run {

// ConfigError 184: precision.compute = "fp8" on a device that has no such products.
void check_fp8_device(const recipe::Recipe& recipe, const device::Properties& device);

// ConfigError 150, 151, 395: slices and strands that do not divide the batch, or pairs that slices would
// part.
void check_batch(const recipe::Recipe& recipe);

// ConfigError 522: an engine that cannot carry the memory of CPU ranks. Only when ranks are really started: a
// plan for GPUs may be looked at where there are none.
void check_engine(const recipe::Recipe& recipe, bool cpu);

// All mistakes that show before anything is opened but the folder of model.from and the beginning of data
// files, in one error. Resolves the kind of the data and adopts the model of model.from.
void check_before_opening(recipe::Resolved& resolved, const Own& own, const PlanOptions& options);

}  // namespace lockstep::run
