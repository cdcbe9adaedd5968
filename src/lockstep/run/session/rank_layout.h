// How the ranks that were started share the work: the recipe's [parallel] section turned into this rank's
// place. What the sizes of model and batch do not allow is said by layout_checks.h.
#pragma once

#include "lockstep/comm/world.h"
#include "lockstep/model/block.h"
#include "lockstep/program/compile.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::run {

struct RankLayout {
  program::DataRanks data;
  model::Parts parts;
  program::Stages stages;  // without the cut of blocks
};

// Where the ranks stand: who reads whose memory, and how many are on each node.
struct Standing {
  bool shares_memory = true, node_shares_memory = true;
  int per_node = 0;  // neighbours; 0: all on one node, or not the same number on each
};

int zero_stage(const std::string& word);  // of parallel.zero: "gradient" and "2" are 2

// ConfigErrors 152, 153, 155, 157 with the arithmetic.
RankLayout rank_layout(const recipe::Recipe& recipe, const comm::Seat& seat, const Standing& standing = {});

// A whole slice as this rank sees it: context ranks hold parts of every sample.
model::SliceShape slice_of(const model::SliceShape& whole, const model::Parts& parts);

}  // namespace lockstep::run
