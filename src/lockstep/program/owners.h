// Parameters that an update rule must see whole, where tensor ranks hold parts of them: each is owned by one
// rank of the tensor group. It gets the others' parts of gradient and master, updates the whole as one rank
// would, and hands the parts back; what the rule keeps is the owner's alone.
//
// Owners are chosen so that each has about as many elements of a block; ties go round from block to block.
#pragma once

#include <vector>

#include "lockstep/program/shards.h"

namespace lockstep::program {

struct Owned {
  int param = 0;   // of BlockLayout::params
  int owner = 0;   // tensor rank
  int64_t at = 0;  // where it begins in the owner's buffers of whole parameters, in elements
  device::Shape whole;
  int64_t part_elements = 0;  // of each rank
};

// Those of a region that tensor ranks cut and that lie in `held`, in the layout's order: the same list on
// every rank of a tensor group.
std::vector<Owned> owned_parameters(const model::BlockLayout& layout, const model::Region& region,
                                    const Span& held, const model::Parts& parts, int block);
int64_t owned_elements(const std::vector<Owned>& all, int owner);
int64_t largest_owned(const std::vector<Owned>& all, int owner);  // elements

// The n-th of each owner, by owner; null: it has no more. They travel together.
std::vector<std::vector<const Owned*>> rounds_of(const std::vector<Owned>& all, int ranks);

}  // namespace lockstep::program
