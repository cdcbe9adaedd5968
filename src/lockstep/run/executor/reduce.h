// Sums and gathers outside a slice, bound: what each rank of the group gives, what this rank sums, and where
// the result goes. `launch` is that of the instruction's lane.
#pragma once

#include <functional>

#include "lockstep/run/executor/bind.h"

namespace lockstep::run {

std::function<void()> bind_reduce(const BindContext& context, const program::Instruction& instruction,
                                  const program::ReduceGradients& what, const kernels::Launch& launch);
std::function<void()> bind_sum_partials(const BindContext& context,
                                        const std::vector<model::BlockLayout>& layouts,
                                        const program::Instruction& instruction,
                                        const kernels::Launch& launch);
std::function<void()> bind_sum_inputs(const BindContext& context, const program::Instruction& instruction,
                                      const kernels::Launch& launch);
std::function<void()> bind_sum_scalars(const BindContext& context, const program::Instruction& instruction,
                                       const kernels::Launch& launch);
std::function<void()> bind_gather_sums(const BindContext& context, const program::Instruction& instruction,
                                       const kernels::Launch& launch);
std::function<void()> bind_gather_statistics(const BindContext& context,
                                             const program::Instruction& instruction,
                                             const kernels::Launch& launch);
std::function<void()> bind_gather_weights(const BindContext& context, const program::Instruction& instruction,
                                          const kernels::Launch& launch);

// The calls that make a block's weights whole in one group: each is a list of parts, by rank of the group.
using GatherParts = std::vector<std::vector<device::Tensor>>;
struct WeightsOf {
  int block = 0;
  model::Stored which = model::Stored::trained;
};
GatherParts gather_parts(const program::Program& program, const WeightsOf& of, program::Among among,
                         const device::Tensor& whole);

}  // namespace lockstep::run
