// Notices a loss that jumps: far above what the last steps gave, though still a number.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "lockstep/run/session/session.h"

namespace lockstep::run {

class SpikeWatch {
 public:
  // Whether this loss is a jump: more than eight times the usual spread, and 30 %, above the median of the
  // last 64 that were none. Never among the first 20.
  bool jumps(double loss);
  double usual() const { return median_; }  // the median it was compared with

 private:
  std::deque<double> recent_;
  double median_ = 0;
};

// The slice of that batch with the highest loss, found by computing the losses again with the weights as they
// are now. Collective; the steps before it have been read back.
struct SliceLoss {
  int64_t slice = -1;
  double loss = 0;  // its share of the batch's loss
};
SliceLoss worst_slice(Session& session, const kernels::StepInputs& inputs, const HostBatch& batch);

}  // namespace lockstep::run
