// What the ranks of a run agree on before the first step.
//
// The recipe that each was given must be the same; then the first rank opens everything, resolves what was
// left open, and its recipe counts for all, so that no rank's own memory or folder decides anything.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

// ConfigError 523 names the first key that differs, and the rank. The build is compared too.
void compare_recipes(comm::World& world, const recipe::Recipe& recipe);

// The numerics record, which exact runs need to be the same everywhere.
void compare_records(comm::World& world, const Plan& plan);

// What the first rank decided before a run starts.
struct Decision {
  recipe::Resolved resolved;
  bool done = false;                     // the folder's run is finished: nothing to do
  int64_t step = 0;                      // of the newest checkpoint
  std::vector<std::string> checkpoints;  // to go on from: the first that loads
  std::string lost;                      // why not to begin at step 0, though there is none of them
};
// `decide` runs on the first rank only; the others get what it returned, the recipe as text.
Decision decide_together(comm::World& world, const std::function<Decision()>& decide);

}  // namespace lockstep::run
