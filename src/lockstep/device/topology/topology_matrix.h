// The matrix of `nvidia-smi topo -m`: every GPU and network card against every other, and the processors near
// each GPU.
#pragma once

#include "lockstep/device/topology/topology.h"

namespace lockstep::device {

// A heading and a row a device; empty when there are none.
std::vector<std::vector<std::string>> link_matrix(const Topology& machine);
std::string aligned(const std::vector<std::vector<std::string>>& rows);  // as lines, columns under each other

// The kinds that occur, near to far.
std::vector<LinkKind> kinds_in(const Topology& machine);

}  // namespace lockstep::device
