// What follows the end of a round, as functions of plain facts: another round or none, and the run's exit
// code.
//
// The leader gathers the facts; each rule has its rows in leader_verdict_test.cc.
#pragma once

#include <optional>

namespace lockstep::launch {

// Of the failure that was first, and of the run it was in.
struct FailureFacts {
  int code = 1;              // of the rank, as a shell says it
  bool final = false;        // it would fail the same way again
  bool own_program = false;  // codes 2 and 3 mean "refused": a restart would be refused again
  bool told_to_end = false;  // by a signal, before
  bool only_saves = false;   // the round was there for nothing else
  bool lost_task = false;    // of a scheduler, which starts it only once
  bool lasted = true;        // the attempt was no short one: a preemption of it is none of its own doing
  int restarts = 0, max_restarts = 0;
};
struct Follows {
  bool again = false;  // another round
  bool burns = false;  // one of the budget of restarts
  int code = 1;        // of the run, if there is none
};
Follows after_failure(const FailureFacts& facts);

// Of a run whose ranks have all ended, the worst of them with `code`, after `signal` (0: none).
int code_after(int code, int signal, bool own_program);

// Whether a round that only saves is worth it: twice, and then the launchers must do it by themselves.
struct RescueFacts {
  bool own_program = false, holds_unsaved = false;
  int rescues = 0;  // so far
};
constexpr int kMostRescues = 2;
bool needs_rescue(const RescueFacts& facts);

}  // namespace lockstep::launch
