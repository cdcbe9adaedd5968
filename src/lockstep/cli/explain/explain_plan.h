// What `explain program` and `explain memory` share: the recipe, for one of so many ranks that need not
// exist.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/arguments.h"
#include "lockstep/run/session/session.h"

namespace lockstep::cli {

struct PlanWords {
  recipe::RecipeSource source;
  int64_t ranks = 1, rank = 0, nodes = 1;  // ranks: of each node
  bool json = false;
};

// [RECIPE] [key=value ...] --nnodes N --nproc N --rank R
void add_plan_words(Arguments& arguments, PlanWords& words);

// Planned and ordered for that rank, whether or not it would fit here. ConfigError 109: a rank beyond the
// last.
run::Plan plan_for(const PlanWords& words);

// "rank 1 of 4 (parallel.zero=3)"; empty for one rank.
std::string rank_line(const run::Plan& plan);

// "sends 3.1 MiB a step inside its node and 1.2 MiB to other nodes".
std::string traffic_text(const run::Plan& plan);

}  // namespace lockstep::cli
