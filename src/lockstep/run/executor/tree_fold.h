// The exact reduction's schedule: partial sums of strands come in, the stack of sums that the tree allows
// comes out.
#pragma once

#include <vector>

#include "lockstep/kernels/reduce/tree_sum.h"
#include "lockstep/program/strands.h"

namespace lockstep::run {

// A partial sum of some strands, somewhere in memory.
struct Partial {
  program::Run run;
  const float* at = nullptr;
  float* scratch = nullptr;  // where a sum that becomes too long for one call may be kept; null: nowhere
};

// One pass: sums[k] is what stands at level `level` afterwards. Passes are run in order; a level is written
// only after everything that read what stood there.
struct FoldPass {
  int level = -1;        // -1: into `sum.out`, which is set (a part of a long sum)
  kernels::TreeSum sum;  // `out` and `count` are the caller's where level >= 0
};

// `kept` is the stack as it stands, in order; `fresh` follows it, in order. Levels that stay as they are have
// no pass.
std::vector<FoldPass> fold(int64_t strands, const std::vector<Partial>& kept,
                           const std::vector<Partial>& fresh);

}  // namespace lockstep::run
