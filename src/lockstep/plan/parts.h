// Where the time of a simulated step and the memory of its fullest rank go.
#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/machine.h"
#include "lockstep/plan/simulate.h"
#include "lockstep/program/check.h"

namespace lockstep::plan {

struct TimePart {
  std::string name;  // "products", "exposed data communication", "pipeline bubble"
  double seconds = 0;
};
// The mean over all ranks' compute lanes: what they compute, by kind, and what they wait for. The parts add
// up to the step.
std::vector<TimePart> time_parts(const World& world, const Walk& walk, const Machine& machine);

// The same as marks of a real run tell it (see/step_time.h): the verbs of compute lanes, then "communication"
// that nothing hides and "nothing".
std::vector<TimePart> verb_parts(const World& world, const Walk& walk);

struct MemoryPart {
  std::string name;  // "optimizer", "activations"
  int64_t bytes = 0;
};
// At the moment of the peak, largest first; they add up to memory.peak_bytes().
std::vector<MemoryPart> memory_parts(const program::Program& program, const program::MemoryPlan& memory);

}  // namespace lockstep::plan
