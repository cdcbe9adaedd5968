// Which processors a rank should run on, and putting it there: near its GPU where it has one, else spread
// over the machine.
//
//     bind_this_thread(cpus_for(Binding::node, local_rank, local_world, read_topology()));
#pragma once

#include <string_view>

#include "lockstep/device/topology/topology.h"

namespace lockstep::device {

enum class Binding { none, node, socket, core_complex };
const char* name_of(Binding binding);          // "none", "node", "socket", "core-complex"
Binding parse_binding(std::string_view text);  // ConfigError 430

// The processors of the NUMA node, socket or core complex that is the rank's, without those that this process
// may not use; none at all when nothing is to be bound. Ranks of one node or socket share it; of core
// complexes each rank gets its own while there are enough. ConfigError 431 when nothing is left.
Cpus cpus_for(Binding binding, int local_rank, int local_world, const Topology& machine);

Cpus allowed_of(const Cpus& cpus);  // those of them on which this thread may run

// An empty list changes nothing. IoError 432. Threads and programs that it starts later inherit it.
void bind_this_thread(const Cpus& cpus);

}  // namespace lockstep::device
