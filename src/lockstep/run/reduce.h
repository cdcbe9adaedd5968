// A `reduce` instruction, bound: what each rank of the group gives, what this rank sums, and where the sum
// goes.
#pragma once

#include <functional>

#include "lockstep/run/bind.h"

namespace lockstep::run {

// Gradients of a bucket of blocks. `launch` is the reduce lane's.
std::function<void()> bind_reduce(const BindContext& context, const std::vector<model::BlockLayout>& layouts,
                                  const program::Instruction& instruction, const kernels::Launch& launch);

// Weights from shares, or statistics from the ranks that computed them. `launch` is the gather lane's.
std::function<void()> bind_gather(const BindContext& context, const program::Instruction& instruction,
                                  const kernels::Launch& launch);

}  // namespace lockstep::run
