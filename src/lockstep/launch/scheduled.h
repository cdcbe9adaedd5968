// What a scheduler's task does: with one task a node it is the node's launcher, with one task a rank it is a
// rank, and on each node the lowest of them runs the launcher beside it.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/environment.h"
#include "lockstep/launch/start.h"

namespace lockstep::launch {

// Flags that were not given, as the scheduler says them: nodes, this node's number, where they meet, the
// run's name.
void take_scheduled(Words& words, const Scheduled& scheduled);

// One task a rank. ConfigError 553: --nproc beside it.
Start start_task(const Scheduled& scheduled, const Words& words, const std::vector<std::string>& argv,
                 const std::string& log_folder, const Say& say);

}  // namespace lockstep::launch
