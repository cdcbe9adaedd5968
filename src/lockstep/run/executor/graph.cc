#include "lockstep/run/executor/graph.h"

#include "lockstep/base/error.h"

namespace lockstep::run {

StepGraph::~StepGraph() {
  for (const device::Graph graph : graphs_) {
    if (graph != nullptr) device_.destroy_graph(graph);
  }
}

device::Graph StepGraph::capture(const std::function<void()>& enqueue) {
  device_.begin_capture(stream_);
  try {
    enqueue();
    return device_.end_capture(stream_);
  } catch (const base::Error& error) {
    refusal_ = error.what();
    try {
      static_cast<void>(device_.end_capture(stream_));  // a capture that failed must still be left
    } catch (const base::Error&) {
    }
    return nullptr;
  }
}

void StepGraph::run(size_t slot, const std::function<void()>& enqueue) {
  if (!refusal_.empty() || steps_++ < kWarmSteps) return enqueue();
  if (graphs_[slot] == nullptr) graphs_[slot] = capture(enqueue);
  if (graphs_[slot] == nullptr) return enqueue();
  device_.launch(graphs_[slot], stream_);
}

}  // namespace lockstep::run
