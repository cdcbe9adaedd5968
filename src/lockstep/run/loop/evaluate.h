// Evaluation: the model's loss on held-out samples, by a program of its own (load, forward, loss).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/run/session/session.h"

namespace lockstep::run {

class Evaluator {
 public:
  explicit Evaluator(Session& session);
  // Mean loss over the first `batches` slices of the eval split, nats a token; fewer when the split is
  // smaller. Nothing: `stop` became true on some rank, and all of them gave it up.
  std::optional<double> run(int64_t batches, const std::atomic<int>* stop = nullptr);
  // Of pairs (model::Model::pairs): the log-probability of every sample of a split, on every rank.
  // Collective. `go_on`, asked on all ranks now and then with the samples that are done: false gives it up,
  // and then nothing.
  std::optional<std::vector<double>> sequences(data::Split split, const std::function<bool(int64_t)>& go_on);

 private:
  bool asked_to_stop(const std::atomic<int>& stop) const;

  Session& session_;
  program::Program program_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace lockstep::run
