// Parameters that an update must see whole, to the tensor ranks that own them and back (program/owners.h).
#pragma once

#include <functional>
#include <vector>

#include "lockstep/run/executor/bind.h"

namespace lockstep::run {

// Where this rank's part of a block's trained values begins in a buffer of them.
using OwnValues = std::function<char*(int buffer)>;

std::function<void()> bind_to_owners(const BindContext& context, const model::BlockLayout& layout,
                                     const program::Instruction& i, const OwnValues& own);
std::function<void()> bind_from_owners(const BindContext& context, const model::BlockLayout& layout,
                                       const program::Instruction& i, const OwnValues& own);

}  // namespace lockstep::run
