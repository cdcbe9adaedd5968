// What the sizes of the model and of the batch do not allow. ConfigErrors that name sizes which would do.
#pragma once

#include "lockstep/model/block.h"
#include "lockstep/program/compile.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::run {

// The sizes named instead suit the `world` ranks.
void check_parts(const recipe::Recipe& recipe, const model::Parts& parts, int world);
// ConfigError 149 for parameters of which every product strand has an addend, which pieces of sequences have
// too. `one`: the model as one of as many tensor ranks as there are product strands.
void check_both_strands(const model::Model& one);
void check_own_model(const model::Parts& parts);
void check_strands(const recipe::Recipe& recipe, const program::DataRanks& ranks);
void check_slices(const recipe::Recipe& recipe, const program::DataRanks& ranks,
                  const program::Stages& stages, const model::Parts& parts);

}  // namespace lockstep::run
