#include "lockstep/plan/cheap.h"

#include <algorithm>

namespace lockstep::plan {

using model::Part;

double cheap_share(const model::Model& model, const model::SliceShape& slice, const kernels::Kernels& kernels,
                   const Machine& machine) {
  const double peak = model.compute == device::DType::f32 ? machine.flops_fp32 : machine.flops_half;
  const auto moving = [&](int64_t bytes) {
    return static_cast<double>(bytes) / machine.memory_bytes_per_second;
  };
  double all = 0, again = 0;  // seconds
  for (const model::Block& block : model.blocks) {
    for (const auto& segment : block.segments()) {
      for (const Part part : {Part::forward, Part::backward_input, Part::backward_weight}) {
        const model::Cost cost = segment->cost(slice, part);
        all += cost.flops() / (peak * machine.reached) + moving(cost.bytes);
      }
      for (const model::Remake& remake : segment->plan(slice, kernels).remakes)
        again += moving(remake.moved_bytes);
    }
  }
  return all > 0 ? again / all : 0;
}

}  // namespace lockstep::plan
