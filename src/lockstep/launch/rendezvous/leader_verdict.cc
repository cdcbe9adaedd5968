#include "lockstep/launch/rendezvous/leader_verdict.h"

#include <signal.h>

#include "lockstep/launch/failure.h"

namespace lockstep::launch {

Follows after_failure(const FailureFacts& facts) {
  const bool preempted = facts.code == kPreempted && facts.lasted;
  const bool refused = facts.own_program && (facts.code == 2 || facts.code == 3 || facts.final);
  const bool ends = facts.told_to_end || facts.only_saves || facts.lost_task || refused;
  // A preemption that was none of its own doing costs nothing, but without a budget nothing starts again.
  const bool left = preempted ? facts.max_restarts > 0 : facts.restarts < facts.max_restarts;
  Follows follows{.again = !ends && left};
  follows.burns = follows.again && !preempted;
  const bool stopped = facts.code == kPreempted || (facts.own_program && facts.told_to_end);
  const bool told = facts.own_program && facts.code >= 1 && facts.code <= 3;
  follows.code = stopped ? kPreempted : told ? facts.code : 1;
  return follows;
}

int code_after(int code, int signal, bool own_program) {
  // Ranks that would not end and were ended: what counts is the signal that asked for it.
  if (signal == 0 || code != 128 + SIGKILL) return code;
  return own_program ? kPreempted : 128 + signal;
}

bool needs_rescue(const RescueFacts& facts) {
  return facts.own_program && facts.holds_unsaved && facts.rescues < kMostRescues;
}

}  // namespace lockstep::launch
