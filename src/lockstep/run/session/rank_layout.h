// How the ranks that were started share the work: the recipe's [parallel] section turned into this rank's
// place, and every reason why it cannot be.
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

// The blocks of each piece of the model, balanced by cost or as the recipe says.
std::vector<program::Piece> cut_stages(const recipe::Recipe& recipe, const model::Model& model,
                                       const program::Layout& layout);

// What the sizes of the model and of the batch do not allow; the sizes named instead suit the `world` ranks.
void check_parts(const recipe::Recipe& recipe, const model::Parts& parts, int world);
void check_own_model(const model::Parts& parts);
void check_strands(const recipe::Recipe& recipe, const program::DataRanks& ranks);
void check_slices(const recipe::Recipe& recipe, const program::DataRanks& ranks,
                  const program::Stages& stages, const model::Parts& parts);

}  // namespace lockstep::run
