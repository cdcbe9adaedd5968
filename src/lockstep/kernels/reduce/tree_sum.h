// The exact reduction's arithmetic: fp32 gradients of several strands, summed over a fixed tree.
#pragma once

#include <cstdint>

#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

constexpr int kTreeInputs = 64;  // in one call; a larger sum is cut at the tree's nodes by the caller

// For each element: push inputs in order on a stack; after input i, `merges[i]` times replace the top two, a
// below b, by a + b. What is left is one value, which goes to `out`. One pass over memory; `out` may be one
// of the inputs.
//   four strands:  merges = {0, 1, 0, 2}:  (x0 + x1) + (x2 + x3)
struct TreeSum {
  int64_t count = 0;  // elements
  int inputs = 0;
  const float* from[kTreeInputs] = {};
  uint8_t merges[kTreeInputs] = {};
  float* out = nullptr;
};

// The most values that the stack holds at once. Merges that do not leave exactly one value are a bug.
int tree_depth(const TreeSum& op);

}  // namespace lockstep::kernels
