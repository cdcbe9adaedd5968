// What "auto" in a recipe comes to on this device: precision, slices, strands, recomputation.
#pragma once

#include "lockstep/run/session/session_plan.h"

namespace lockstep::run {

// What the device can do best, when the recipe leaves it open. A model of the user's own is as it was
// written: of its operations Lockstep knows nothing, and some (batch norm) do not take 16-bit weights.
device::DType resolve_precision(recipe::Resolved& resolved, const device::Properties& device, bool own_model);

void resolve_logits_chunk(recipe::Resolved& resolved, device::DType compute, bool cuda);

// Slices, strands and what is computed again, where the recipe says "auto"; then the whole layout.
void resolve_layout(Plan& plan);

// Where what "auto" means by default does not fit, the cheapest that does, if there is one.
void resolve_smaller(Plan& plan);

}  // namespace lockstep::run
