// What a run tells while it trains: a report a step, evaluations, and events with their reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/histogram.h"

namespace lockstep::run {

// What preference tuning says of a step's pairs. A reward is beta times what a log-probability has gained
// over the reference's.
struct PreferenceReport {
  double chosen = 0, rejected = 0;  // mean rewards
  double accuracy = 0;              // share of the pairs whose chosen reward is the larger one
  double margin() const { return chosen - rejected; }
};

struct StepReport {
  int64_t step = 0;  // steps done, counted from 1
  double loss = 0, learning_rate = 0, grad_norm = 0;
  const char* unit = "tokens";  // what `tokens` counts: "samples" for models that predict no tokens
  int64_t tokens = 0;           // so far
  double tokens_per_s = 0, step_ms = 0, data_wait_ms = 0;
  std::optional<double> mfu;
  double memory_gib = 0;  // of the fullest rank
  bool applied = true;
  float loss_scale = 1;
  std::string params_hash;                          // with log.fingerprint
  std::optional<PreferenceReport> preference = {};  // with tune.loss = dpo
};

// Told of everything that happens, in order, on the training thread.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void stepped(const StepReport&) {}
  virtual void evaluated(int64_t step, double loss) { (void)step, (void)loss; }
  // Of a step's gradients, of one block: with log.histograms.
  virtual void histogram(int64_t step, const std::string& block, const base::Histogram& gradient) {
    (void)step, (void)block, (void)gradient;
  }
  virtual void event(const std::string& name, const std::string& why, int64_t step) {
    (void)name, (void)why, (void)step;
  }
};

}  // namespace lockstep::run
