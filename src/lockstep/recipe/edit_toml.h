// Writes keys into a recipe file and leaves the rest of it, comments too, as it is.
//
//     edit_toml("[batch]\nslices = 4  # ours\n", {{"batch.slices", "64"}, {"memory.recompute", "\"full\""}})
//     "[batch]\nslices = 64  # ours\n\n[memory]\nrecompute = \"full\"\n"
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::recipe {

// Keys with one dot and values as TOML writes them. A key that stands there is replaced, another is added to
// its section, and a section that is missing to the end. Whoever writes the result reads it back first.
std::string edit_toml(std::string_view text, const std::vector<std::pair<std::string, std::string>>& keys);

}  // namespace lockstep::recipe
