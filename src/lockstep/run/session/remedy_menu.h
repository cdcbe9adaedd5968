// A step that does not fit, and what would make it fit: combinations of changes, each with the memory it
// would need and the time a step would take, the fastest first.
//
//     for (const MenuRow& row : remedy_menu(plan, plan.available_bytes, this_place(plan).machine)) ...
//
// Programs are compiled and placed for the memory, and walked by the simulator for the time; nothing runs.
#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/machine.h"
#include "lockstep/run/session/session_plan.h"

namespace lockstep::run {

struct MenuRow {
  std::string change;       // words for a command line: "batch.slices=64 memory.recompute=full"
  std::string price;        // what it is paid with: "smaller products; other bits"
  int64_t peak_bytes = 0;   // of this rank
  double step_seconds = 0;  // forecast; 0: not known, since the model is the program's own
};

// Empty: nothing fits.
std::vector<MenuRow> remedy_menu(const Plan& plan, int64_t available_bytes, const plan::Machine& machine);

}  // namespace lockstep::run
