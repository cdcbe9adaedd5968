// A `reduce` instruction, bound: what each rank of the group gives, what this rank sums, and where the sum
// goes.
#pragma once

#include <functional>

#include "lockstep/run/executor/bind.h"

namespace lockstep::run {

// Gradients of a bucket of blocks. `launch` is the reduce lane's.
std::function<void()> bind_reduce(const BindContext& context, const std::vector<model::BlockLayout>& layouts,
                                  const program::Instruction& instruction, const kernels::Launch& launch);

// Weights from shares, sums from the node's pieces, or statistics from the ranks that computed them. `launch`
// is that of the instruction's lane.
std::function<void()> bind_gather(const BindContext& context, const program::Instruction& instruction,
                                  const kernels::Launch& launch);

// The calls that make a block's weights whole in one group: each is a list of parts, by rank of the group.
using GatherParts = std::vector<std::vector<device::Tensor>>;
GatherParts gather_parts(const program::Program& program, int block, program::Among among,
                         const device::Tensor& whole);

}  // namespace lockstep::run
