// Which blocks of the model each pipeline stage holds.
#pragma once

#include <vector>

#include "lockstep/model/block.h"
#include "lockstep/program/compile.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::run {

// The blocks of each piece of the model, balanced by cost or as the recipe says.
std::vector<program::Piece> cut_stages(const recipe::Recipe& recipe, const model::Model& model,
                                       const program::Layout& layout);

}  // namespace lockstep::run
