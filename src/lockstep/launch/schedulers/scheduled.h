// What a scheduler's task does: with one task a node it is the node's launcher, with one task a rank it is
// the launcher of that rank, which lets all of them start again together without asking the scheduler.
#pragma once

#include "lockstep/launch/agent.h"
#include "lockstep/launch/schedulers/environment.h"

namespace lockstep::launch {

// Flags that were not given, as the scheduler says them: nodes, this node's number, their rendezvous, the
// run's name.
void take_scheduled(Words& words, const Scheduled& scheduled);

// One task a rank: what its launcher is to do, as far as the scheduler knows. ConfigError 553: --nproc or a
// range of nodes beside it.
AgentJob job_of_task(const Scheduled& scheduled, const Words& words);

}  // namespace lockstep::launch
