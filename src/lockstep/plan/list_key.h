// Which ranks of a mesh have the same list, without compiling it for each of them.
#pragma once

#include <vector>

#include "lockstep/comm/mesh.h"
#include "lockstep/program/program.h"

namespace lockstep::plan {

// The first rank of each list, and for every rank the index of its own.
struct Lists {
  std::vector<int> first;
  std::vector<int> of;  // [rank]
};
// Ranks with the same list have the same instructions, but for the numbers of their slices and the sizes of
// their shares. `data` gives widths and stage of sharing; where a rank stands is taken from the mesh.
Lists lists_of(const comm::Mesh& mesh, const program::DataRanks& data, int64_t strands);

}  // namespace lockstep::plan
