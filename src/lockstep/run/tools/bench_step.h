// How fast a recipe's step is here, measured as training runs it: one step enqueued while the one before it
// is read.
//
// `limit_ms` is what the step would take if every product ran at the rate of a large square product and
// everything else at the speed of a copy, both measured in the same process just before: what is left between
// that and the step's own time is what kernels, gaps and small shapes cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/laps.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::run {

struct BenchStepOptions {
  int64_t steps = 20;          // timed
  int64_t warm_up = 5;         // before them: choices are made, a graph is captured
  base::Laps* laps = nullptr;  // of the way to the first step
};

struct BenchStep {
  std::string device, model, compute;
  int64_t parameters = 0, samples = 0, seq_len = 0, slices = 0;
  double first_step_s = 0;  // since the process started; only true of its first measurement
  double median_ms = 0, low_ms = 0,
         high_ms = 0;  // of the timed steps: the tenth and the ninetieth percentile
  double tokens_per_s = 0;
  std::optional<double> mfu;  // model FLOPs (Model::flops_per_token) a second over the device's peak
  double memory_gib = 0;      // the most that was allocated
  double product_tflops = 0, copy_gb_s = 0;  // the ceilings
  double fp8_tflops = 0;                     // of a product of fp8, where the step has any
  double limit_ms = 0;
  bool graph = false;  // the timed steps were launched as one CUDA graph
};

void check(const BenchStepOptions& options);  // ConfigError 109
BenchStep bench_step(const recipe::Resolved& resolved, const BenchStepOptions& options);

}  // namespace lockstep::run
