// A loss that went wrong, for `lockstep why`: at which step, on which samples, in which blocks gradients grew
// most, and how to compute that step again.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/see/run_events.h"
#include "lockstep/see/run_log.h"

namespace lockstep::cli {

struct GrownBlock {
  std::string block;
  double before = 0, now = 0;  // root mean squares of its gradient
};

struct LossStory {
  see::RunEvent event;
  double loss_before = 0, loss = 0, norm_before = 0, norm = 0, rate = 0;  // NaN: not logged
  int64_t first_sample = 0, samples = 0;  // of the run's order; 0: its batch size is not known
  std::vector<GrownBlock> blocks;         // the most first; empty: not known
  std::string blocks_from;                // where they are from, in words
  std::string how_to_replay;              // a command
};

// `log` may be of a run without a line of that step. `compute`: the step and the one before it are computed
// again.
LossStory story_of(const std::string& folder, const see::RunEvent& event, const see::RunLog& log,
                   bool compute);
std::vector<std::string> lines_of(const LossStory& story);
nlohmann::json json_of(const LossStory& story);

}  // namespace lockstep::cli
