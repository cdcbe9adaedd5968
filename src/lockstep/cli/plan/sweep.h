// What `lockstep plan --sweep` is asked.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/plan/report.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::cli {

struct SweepWords {
  std::vector<plan::Place> places;  // machines and counts
  Paying paying;
  std::string out;  // a CSV file; empty: none
  bool json = false;
};

// "8xH100", "a3-highgpu-8g x 1:32" (1, 2, 4, ... 32 of them), several with commas.
std::vector<plan::Place> parse_places(const std::vector<std::string>& words);

int plan_sweep(const recipe::Resolved& resolved, const SweepWords& words);

}  // namespace lockstep::cli
