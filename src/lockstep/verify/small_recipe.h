// A small version of a recipe: the same family, data, optimizer and precision, so few layers and so short
// sequences that it trains in a second, and enough slices for every usual layout.
//
// What decides whether a layout fits (whether weights are tied, which numbers of ranks divide heads and
// sizes) stays as it is; what only costs time shrinks.
#pragma once

#include "lockstep/model/block.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::verify {

struct Small {
  recipe::Recipe recipe;
  std::vector<std::string> changes;  // "model.layers 32 -> 6", for the heading of the report
};

// `steps` steps for layouts of up to `ranks` ranks that cut the model into up to `pieces`. Opens the data,
// because it says how many tokens there are.
Small small_recipe(const recipe::Resolved& resolved, int64_t steps, int64_t ranks, int64_t pieces = 1);

// The blocks of its model, in model order, with the canonical names of their parameters.
struct BlockNames {
  std::string name;
  std::vector<std::string> params;
};
std::vector<BlockNames> blocks_of(const recipe::Recipe& recipe);

}  // namespace lockstep::verify
