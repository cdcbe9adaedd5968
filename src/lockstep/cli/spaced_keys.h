// A shell makes three words of `run.steps = 10`: said so, with the word that was meant.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// ConfigError 107 for the first key that stands apart from its value; `words` are key=value.
void refuse_spaced_keys(const std::vector<std::string>& words);

}  // namespace lockstep::cli
