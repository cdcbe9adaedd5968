// Variables by which scripts of other frameworks find each other, added to torchrun's:
// `lockstep launch --framework jax train.py`.
//
// One row per framework. A row only adds variables; ranks, restarts and logs are the same for all.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/process/rank_environment.h"

namespace lockstep::launch {

struct Framework {
  const char* name;       // of --framework
  const char* variables;  // for people
  // Each rank listens on a port of its own: its node's master_port plus its number on that node.
  bool port_per_rank = false;
  bool own_store = false;  // its ranks meet in a store that the first node's launcher keeps (horovod_store.h)
  void (*add)(std::vector<std::string>& environment, const RankFacts& facts) = nullptr;
};
const std::vector<Framework>& frameworks();
const Framework* find_framework(const std::string& name);  // nullptr: there is no such framework

// Where each rank of a round listens, by rank: "10.0.0.2:20117".
std::vector<std::string> rank_addresses(const State& state);

}  // namespace lockstep::launch
