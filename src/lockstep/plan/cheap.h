// What it would cost to make cheap values again in the backward pass instead of keeping them
// (memory.recompute = "cheap"), as a share of a slice's forward and backward pass on a machine.
#pragma once

#include "lockstep/model/block.h"
#include "lockstep/plan/machine.h"

namespace lockstep::plan {

constexpr double kCheapShare = 0.01;  // memory.recompute = "auto" takes what costs less

// 0 when the model has nothing to make again.
double cheap_share(const model::Model& model, const model::SliceShape& slice, const kernels::Kernels& kernels,
                   const Machine& machine);

}  // namespace lockstep::plan
