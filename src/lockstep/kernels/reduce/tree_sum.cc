#include "lockstep/kernels/reduce/tree_sum.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::kernels {

int tree_depth(const TreeSum& op) {
  LS_ASSERT(op.inputs >= 1 && op.inputs <= kTreeInputs);
  int depth = 0, deepest = 0;
  for (int i = 0; i < op.inputs; ++i) {
    deepest = std::max(deepest, ++depth);
    LS_ASSERT(op.merges[i] < depth, "a merge needs two values");
    depth -= op.merges[i];
  }
  LS_ASSERT(depth == 1, "the merges must leave one value");
  return deepest;
}

}  // namespace lockstep::kernels
