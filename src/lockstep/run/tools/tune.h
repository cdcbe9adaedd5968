// Tuning: times a few real steps for every slice size and recomputation that fits the device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/recipe/schema.h"

namespace lockstep::run {

struct TuneOptions {
  int64_t steps = 5;  // timed, after two that warm up
};

struct Trial {
  int64_t slices = 1, strands = 1, samples = 1;
  std::string recompute;
  bool same_bits = false;  // as the recipe's own: as many slices, as many strands
  bool own = false;        // the recipe's own, in all
  bool fits = false;
  int64_t peak_bytes = 0;
  double step_ms = 0, tokens_per_s = 0;  // median
};

// Fastest first, and what the recipe has already before what is as fast; those that do not fit last. `say` is
// told what is being tried.
std::vector<Trial> tune(const recipe::Resolved& resolved, const TuneOptions& options,
                        const std::function<void(const std::string&)>& say);

}  // namespace lockstep::run
