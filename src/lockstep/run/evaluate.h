// Evaluation: the model's loss on held-out samples, by a program of its own (load, forward, loss).
#pragma once

#include <memory>

#include "lockstep/run/session.h"

namespace lockstep::run {

class Evaluator {
 public:
  explicit Evaluator(Session& session);
  // Mean loss over the first `batches` slices of the eval split, nats a token; fewer when the split is
  // smaller.
  double run(int64_t batches);

 private:
  Session& session_;
  program::Program program_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace lockstep::run
