// Which way the linear maps of a Hugging Face folder lie.
//
// The families' rows say it (model/families/family.h), and a checkpoint is read below them: so the answer is
// declared here and written in tables/weight_order.cc, as with choices.h.
#pragma once

#include <string_view>

namespace lockstep::recipe {

// Whether weights are [in, out] in a folder whose config.json has this "model_type"; not for one that no
// family reads.
bool weights_by_input(std::string_view model_type);

}  // namespace lockstep::recipe
