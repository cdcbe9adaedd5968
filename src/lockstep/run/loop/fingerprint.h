// Copies of the weights that several ranks hold must have the same bits. A rank whose do not is named:
// memory, a device or a link has flipped one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/run/session/session.h"

namespace lockstep::run {

// Ranks of the same class hold the same elements; `hashes` are by rank. The ranks that the others of their
// class outvote; where there is no majority, all of that class.
std::vector<int> odd_ones_out(const std::vector<uint64_t>& classes, const std::vector<uint64_t>& hashes);

// Empty: all copies are the same. Else one sentence that names the ranks, the same on every rank. The steps
// before it have been read back. Collective.
std::string compare_copies(const Session& session, int64_t step);

}  // namespace lockstep::run
