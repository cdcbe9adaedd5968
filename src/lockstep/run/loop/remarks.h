// What a person should hear before the first step: keys that do nothing, a schedule that cannot be meant,
// more threads than processors, a GPU that is left unused. One sentence each, with the remedy.
#pragma once

#include <string>
#include <vector>

#include "lockstep/recipe/key_condition.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

// Of a run that is about to start. `run` has the plan's own recipe.
std::vector<std::string> remarks_on(const Plan& plan, const recipe::Circumstances& run);

// Why the GPU of this machine is not used, and what would help; empty: it is, there is none, or the recipe
// wants it so.
std::string unused_gpu(const Plan& plan);

// The pieces, pure.
std::vector<std::string> schedule_remarks(const recipe::Resolved& resolved);
// `variable`: OMP_NUM_THREADS, if it is set; `processors`: how many this process may use.
struct ThreadFacts {
  int threads = 1, local_ranks = 1, processors = 1;
  const char* variable = nullptr;
  bool from_recipe = false;  // run.threads says how many
};
std::vector<std::string> thread_remarks(const ThreadFacts& facts);

// What a run that goes on from `step` steps with another length does to the learning rate, and how to keep
// it; empty: nothing changes. `before`: the recipe that those steps were trained with.
std::string schedule_change(const recipe::Recipe& before, const recipe::Recipe& now, int64_t step);

}  // namespace lockstep::run
