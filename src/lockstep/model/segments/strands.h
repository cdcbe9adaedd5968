// One segment of a layer in those of its product strands that a rank has.
//
// With batch.product_strands = P every segment that tensor ranks may share is built P times, each time for
// one of P equal parts of its weights, as if there were P tensor ranks. A rank runs its share of them one
// after the other: P on one rank, one on each of P. What they add up to (the output of a row-parallel map,
// the gradient of what column-parallel maps read) is summed over one balanced tree over all P, first here,
// then, at the seam, among the ranks. So the bits do not depend on how many ranks there are.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/model/block.h"

namespace lockstep::model {

// An edge that every strand takes whole. Its gradient is what their gradients of it add up to.
struct SharedInput {
  std::string name;
  DType type = DType::f32;
  int64_t width = 0;
};

struct StrandEdges {
  std::vector<SharedInput> shared{};
  std::vector<std::string> summed{};  // outputs that are addends; all other edges are each strand's own
  bool loss = false;                  // it is the loss, in rounds of two parts (SegmentPlan::rounds)
};

// `make` builds the segment for one of `tensor` parts.
std::unique_ptr<Segment> in_strands(const Parts& parts, StrandEdges edges,
                                    const std::function<std::unique_ptr<Segment>(const Parts&)>& make);

}  // namespace lockstep::model
