// Engines: how a group's operations are carried out. One file and one row each.
//
//   shm   CPU ranks of one host: peers read each other's memory directly; nothing is staged
//   gloo  CPU ranks anywhere, through c10d and the run's store
//   nccl  CUDA ranks; libnccl.so.2 is opened when the first group is made
//
// A row says what its engine can do, and nothing outside asks for one by name: what carries a group is told
// by group.shares_memory() and group.enqueues(). A program adds an engine of its own before it reads a
// recipe: register_engine(row); then parallel.engine takes its name. An engine that cannot serve is refused
// with the reason, never replaced by another.
#pragma once

#include <functional>
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
// when they first join. Plain memory where there is no sharing.
class SharedArena : public device::MemorySource {};  // 4096-aligned, zeroed by the kernel
std::unique_ptr<SharedArena> make_shared_arena();

struct Engine {
  std::string name;                                         // what parallel.engine takes
  std::string describe;                                     // one line
  std::vector<device::Kind> carries = {device::Kind::cpu};  // whose memory it works on
  bool shares_memory =
      false;               // members of one host read each other's memory where it lies: nothing is staged
  bool enqueues = false;   // calls return when they are on the stream, and are done behind it
  bool automatic = false;  // parallel.engine = "auto" may take it: the first in the table that can serve
  // What keeps these ranks from using it; empty: nothing. Collective: all get the same answer. Null: nothing
  // ever does.
  std::function<std::string(const GroupOptions& options, Store& store)> why_not = {};
  // Collective over options.ranks, two or more. CommError 521 names a member that does not come. `arena` is
  // given to engines that share memory, and may be plain memory.
  std::function<std::unique_ptr<Group>(const GroupOptions& options, Store& store, SharedArena* arena)> make;
  std::vector<std::string> reads = {};  // keys of the recipe that count only for some engines

  bool carries_memory_of(device::Kind kind) const;
};

const std::vector<Engine>& engines();
const Engine* find_engine(const std::string& name);  // null: "auto", or no engine
// Before the first recipe is read (base/registry.h).
void register_engine(Engine engine);
// Whether ranks of one host that compute on the CPU would read each other's memory with this
// engine (or "auto"), as far as one can say before they join.
bool would_share_memory(const std::string& name);

// "auto": the first automatic engine for these ranks' memory that can serve: nccl for CUDA, shm when every
// rank is on one host and can map the others' memory, else gloo. Collective: every member calls it with the
// same name. CommError 521 when a member does not come.
std::unique_ptr<Group> make_group(const std::string& engine, GroupOptions options, Store& store,
                                  SharedArena* arena);

// The engine that this name, or "auto", means for these ranks; agreed through the store. ConfigError 522: an
// engine that does not fit. `why`, if given, says what kept the ranks from the engine that "auto" would
// rather have taken; empty when nothing did.
std::string resolve_engine(const std::string& name, const GroupOptions& options, Store& store,
                           std::string* why = nullptr);

// A group of one: every operation is a copy or nothing. `device` copies; null is the CPU.
std::unique_ptr<Group> make_group_alone(std::string name, device::Device* device = nullptr);

}  // namespace lockstep::comm
