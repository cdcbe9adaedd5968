// Ranks that another launcher started (torchrun, or RANK and WORLD_SIZE set by hand): they find each other
// without an agent.
//
// Rank 0 holds the store. On one machine it invites the others through a file that only this user can read.
// Over several it opens a port that all derive from the job's name, on MASTER_ADDR, and everyone must know
// the secret.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/store/store.h"
#include "lockstep/comm/world.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/rendezvous/run_store.h"

namespace lockstep::launch {

// CommError 551, 552: rank 0 did not come in time. ConfigError 515: another secret; 528: a second rank 0.
std::unique_ptr<comm::Store> join_foreign_ranks(const comm::Seat& seat, const Options& options,
                                                const Say& say);

}  // namespace lockstep::launch
