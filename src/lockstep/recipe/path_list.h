// Paths as people write them in recipes: several with commas, ~ for the home folder, and in a recipe file
// relative to that file.
#pragma once

#include <string>
#include <vector>

#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {

// "a.txt, b.txt" to {"a.txt", "b.txt"}. A comma that belongs to a name is written "\,"; a text that is the
// name of something as it stands is one path.
std::vector<std::string> split_paths(const std::string& text);
std::string join_paths(const std::vector<std::string>& paths);

// "~/x" and "~name/x" with the home folder in place; anything else, also an unknown name, as it is.
std::string with_home(const std::string& path);

bool is_pattern(const std::string& path);  // holds *, ? or [
// What a pattern matches, in the order of names; empty: nothing.
std::vector<std::string> matches_of(const std::string& pattern);

// Where the paths in a recipe file start; empty: in the working folder. So do those in the config.toml of a
// run folder: they are what the run was started with.
std::string recipe_folder(const std::string& file);

// The value of a key that names files, made ready to be opened: ~ is replaced, and what a recipe in `folder`
// names is looked for there before the working folder.
void resolve_paths(const Key& key, const std::string& folder, Recipe& recipe);

}  // namespace lockstep::recipe
