// When every rank did what, by lane: from the marks that ranks leave while they train, or from a profile.
//
//     const Timeline timeline = timeline_of_rings("runs/first", {.steps = 2});
//     for (const LaneTimes& lane : timeline.lanes) ... lane.rank, lane.name, lane.spans ...
//
// Marks hold the newest few thousand instructions of each rank of this host, whose clocks agree. Times are
// microseconds since the earliest span shown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::see {

struct TimeSpan {
  std::string name;  // "backward_weight b2 up s0"
  int64_t step = 0;
  double begin = 0, length = 0;  // microseconds
  bool open = false;             // it has not ended
};

struct LaneTimes {
  int rank = 0;
  std::string name;  // "compute"; "waits in collectives" is inside instructions of other lanes
  std::vector<TimeSpan> spans;
};

struct Timeline {
  std::vector<LaneTimes> lanes;  // by rank
  int64_t first_step = 0, last_step = 0;
  double length = 0;    // microseconds
  int ranks = 0;        // there are; of many only the first are shown
  std::string problem;  // why there is nothing to show
};

struct TimelineOptions {
  int steps = 2;  // whole ones, the newest
  int most_ranks = 16;
};

Timeline timeline_of_rings(const std::string& folder, const TimelineOptions& options);
// RUN/trace/profile.json, as `train --profile` and `profile` write it; its last steps.
Timeline timeline_of_profile(const std::string& folder, const TimelineOptions& options);
bool has_profile(const std::string& folder);

}  // namespace lockstep::see
