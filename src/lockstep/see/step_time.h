// Where the time of a step goes, from what every rank did when: computation, communication that nothing
// hides, waiting for data, and nothing at all.
//
//     const StepTime time = step_time_of(timeline_of_rings("runs/first", {}), data_share);
//     time.computation + time.communication + time.data + time.idle == 1
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/see/timeline.h"

namespace lockstep::see {

struct RankTime {
  int rank = 0;
  double computation = 0, communication = 0;  // seconds per step; the second only where it does not compute
};

struct StepTime {
  int64_t first_step = 0, last_step = 0;  // those that were looked at
  double seconds = 0;                     // from step to step
  // Parts of the time, of all ranks together.
  double computation = 0, communication = 0, data = 0, idle = 0;
  // Of the time that ranks want processors, the part in which others have them: it makes all the rest longer.
  // Not from the timeline; who asks the kernel sets it.
  double starved = 0;
  double hidden = 0;  // communication beside computation, which costs nothing
  std::vector<std::pair<std::string, double>>
      kinds;  // of the computation: "backward" 0.31, ...; largest first
  std::vector<RankTime> ranks;
};

// What an instruction is called in `kinds`: "backward_weight b2 up s0" is "backward", others their verb.
std::string kind_of(const std::string& instruction);

// `data_share`: the part of a step that the run itself says it waited for data. Zero seconds: the timeline
// has no whole step.
StepTime step_time_of(const Timeline& timeline, double data_share);

// The rank that the others wait for, where there is one: it waits much less and computes longer.
const RankTime* slowest_rank(const StepTime& time);

}  // namespace lockstep::see
