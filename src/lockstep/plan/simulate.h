// simulate(): walks the step programs of a world beside each other, as the ranks would run them, without
// running anything. It says when each instruction begins and ends, how long the step takes and how much of it
// the compute lanes idle; or why the step would never end.
//
//     plan::World world = plan::world_of(mesh);            // and its programs, placed and ordered
//     plan::Walk walk = plan::simulate(world, [&](int, const Program&, const Instruction& i) { return 1.0;
//     }); if (!walk.problems.empty()) ...                      // one sentence each
//
// The rules: instructions of one lane run in list order; one begins when those that it waits for on other
// lanes are done (program::order). A collective begins when all of its members have come to it: the k-th call
// of a lane's group meets the k-th call of the others. A send ends when the receiver has taken it, and the
// k-th send of a link meets the k-th recv; nothing is buffered, so what does not deadlock here deadlocks
// nowhere. Ranks that behave alike are walked once (plan/world.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/plan/world.h"

namespace lockstep::plan {

// Seconds that an instruction takes on `rank` once it runs. Of a meeting, the longest of its members counts.
using Price =
    std::function<double(int rank, const program::Program& program, const program::Instruction& instruction)>;

struct Rules {
  // What goes to the next stage and what goes back to the previous one are two links, even where both are the
  // same rank. Otherwise a pair of ranks has one link in each direction.
  bool links_by_direction = false;
  // Ranks that share a device's queue must launch meetings in one order on all ranks, whatever the lanes:
  // collectives always; with this, sends and receives too.
  bool messages_in_launch_order = false;
  std::function<int(int rank)> apart;  // of classes_of()
};

struct Span {
  double begin = 0, end = -1;  // seconds; end < 0: never done
};

struct Walk {
  Classes classes;
  std::vector<std::vector<Span>> spans;  // [class][instruction]
  double step_seconds = 0;
  double bubble = 0;  // of all ranks' compute lanes, the share of the step in which they idle
  // Sentences: a deadlock, with who waits for whom; members that come to a meeting with different things;
  // meetings that are launched in different orders. Empty when the world is sound.
  std::vector<std::string> problems;
};

Walk simulate(const World& world, const Price& price, const Rules& rules = {});

// The checker's use of it: throws base::Bug with the first problems when the world is not sound.
void check_world(const World& world, const Rules& rules = {});

}  // namespace lockstep::plan
