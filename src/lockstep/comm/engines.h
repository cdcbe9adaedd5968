// The engines' own files, for engine.cc's table. Each row outlives every group.
#pragma once

#include "lockstep/comm/engine.h"

namespace lockstep::comm {

const Engine& shm_engine();  // an arena of null or plain memory: everything passes through bounce buffers
const Engine& gloo_engine();
const Engine& nccl_engine();

// What keeps these ranks from reading each other's memory; empty: nothing. Collective: all get the same
// answer.
std::string why_not_shm(const GroupOptions& options, Store& store);

}  // namespace lockstep::comm
