// A whole step as one CUDA graph: recorded from the step program once, launched with one call afterwards.
//
// The program is static and everything that changes from step to step lives in device memory (the learning
// rate, the step's number, the batch), so the same graph serves every step. Batches come out of two pinned
// slots in turn, so there are two graphs. The first steps run call by call: that is when kernels choose and
// load what they need.
#pragma once

#include <functional>
#include <string>

#include "lockstep/device/device.h"

namespace lockstep::run {

class StepGraph {
 public:
  StepGraph(device::Device& device, device::Stream stream) : device_(device), stream_(stream) {}
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Runs the step whose batch lies in `slot` (0 or 1). `enqueue` hands every instruction to the stream.
  void run(size_t slot, const std::function<void()>& enqueue);
  bool captured(size_t slot) const { return graphs_[slot] != nullptr; }
  // Why steps run call by call for good; empty: they do not.
  const std::string& refusal() const { return refusal_; }

 private:
  device::Graph capture(const std::function<void()>& enqueue);

  static constexpr int kWarmSteps = 2;
  device::Device& device_;
  device::Stream stream_;
  device::Graph graphs_[2] = {};
  int steps_ = 0;
  std::string refusal_;
};

}  // namespace lockstep::run
