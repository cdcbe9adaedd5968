// What ranks bring to a meeting, and whether it is the same.
#pragma once

#include <string>

#include "lockstep/program/program.h"

namespace lockstep::plan {

// "rank 3, #17 reduce b2 round 0 among shard ranks (reduce)".
std::string call_name(int rank, size_t index, const program::Instruction& instruction);

// Why these two cannot meet, such as "one reduces b2, the other b1"; empty when they can. Slices may differ
// between ranks that share the batch, and shares of a block may differ in size; what they belong to may not.
std::string differs(const program::Program& a, const program::Instruction& x, const program::Program& b,
                    const program::Instruction& y);

}  // namespace lockstep::plan
