// Which ranks of a mesh have the same list, without compiling it for each of them.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/mesh.h"
#include "lockstep/program/program.h"

namespace lockstep::plan {

// Ranks with the same key have the same instructions, but for the numbers of their slices and the sizes of
// their shares. `data` gives widths and stage of sharing; where it stands is taken from the mesh.
std::string list_key(const comm::Mesh& mesh, int rank, const program::DataRanks& data, int64_t strands);

// The first rank of each key, and for every rank the index of its own.
struct Lists {
  std::vector<int> first;
  std::vector<int> of;  // [rank]
};
Lists lists_of(const comm::Mesh& mesh, const program::DataRanks& data, int64_t strands);

}  // namespace lockstep::plan
