// Names that people bring from other trainers, and what to write here.
//
//     remedy_for("learning_rate")  // "did you mean optim.lr?"
//     remedy_for("epochs")         // "training is counted in steps: set run.steps; ..."
//
// A row of recipe_keys() lists what others call the same key (Key::also). What has another form here (epochs,
// bf16=True) or no key at all has a sentence in other_names.cc. The command line, recipes and Python all ask
// here.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::recipe {

struct Key;

std::string remedy_for(std::string_view unknown);  // the end of a sentence that refuses `unknown`
// The same where the name is one of those tables', dashes or underscores; empty where it only resembles one.
const Key* key_called(std::string_view name);
std::string_view advice_for(std::string_view name);

}  // namespace lockstep::recipe
