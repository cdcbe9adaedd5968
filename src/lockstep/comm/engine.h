// Engines: how a group's operations are carried out. One file each, one row in engine.cc.
//
//   shm   CPU ranks of one host: peers read each other's memory directly; nothing is staged
//   gloo  CPU ranks anywhere, through c10d and the run's store
//   nccl  CUDA ranks; libnccl.so.2 is opened when the first group is made
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/comm/store/store.h"

namespace lockstep::comm {

struct GroupOptions {
  std::string name;        // "data.reduce": unique in the run, the same on every member
  std::vector<int> ranks;  // members, by world rank, in group order
  int self = 0;            // this process's world rank, one of them
  Duration timeout{600000};
  std::string
      interface;  // network interface or address for Gloo and NCCL; empty: the one that reaches the store
  device::Device* device = nullptr;
};

// Memory that the ranks of this host can read from each other. Allocations come from one memfd; peers map it
// when they first meet. Plain memory where there is no sharing.
class SharedArena : public device::MemorySource {};  // 4096-aligned, zeroed by the kernel
std::unique_ptr<SharedArena> make_shared_arena();

// "auto": nccl for CUDA, shm when every rank is on one host and can map the others' memory, else gloo.
// Collective: every member calls it with the same name. CommError 521 when a member does not come.
std::unique_ptr<Group> make_group(const std::string& engine, GroupOptions options, Store& store,
                                  SharedArena* arena);

// The engine that "auto" means for these ranks; agreed through the store. ConfigError 522: an engine that
// does not fit. `why`, if given, says what kept the ranks from sharing memory; empty when nothing did.
std::string settle_engine(const std::string& wish, const GroupOptions& options, Store& store,
                          std::string* why = nullptr);

// A group of one: every operation is a copy or nothing. `device` copies; null is the CPU.
std::unique_ptr<Group> make_group_alone(std::string name, device::Device* device = nullptr);

}  // namespace lockstep::comm
