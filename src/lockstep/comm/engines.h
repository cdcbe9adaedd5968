// The engines' makers, for engine.cc's table.
#pragma once

#include "lockstep/comm/engine.h"

namespace lockstep::comm {

// Each is collective over options.ranks. CommError 521 names a member that does not come.
// shm: `arena` may be null or plain memory; then everything passes through bounce buffers.
std::unique_ptr<Group> make_shm_group(const GroupOptions& options, Store& store, SharedArena* arena);
std::unique_ptr<Group> make_gloo_group(const GroupOptions& options, Store& store, SharedArena*);
std::unique_ptr<Group> make_nccl_group(const GroupOptions& options, Store& store, SharedArena*);

// What keeps these ranks from reading each other's memory; empty: nothing. Collective: all get the same
// answer.
std::string why_not_shm(const GroupOptions& options, Store& store);

}  // namespace lockstep::comm
