// Parameter groups, as a recipe names them: a pattern of parameters' names, and what is their own.
//
//     optim.groups = ["*.bias weight_decay=0", "transformer.wte.* lr_scale=0.1 kind=sgd"]
//
// In a file each may be a table, [[optim.groups]] with match = "*.bias" (recipe/toml.h makes such text of
// it). Names are the model's canonical ones, which checkpoints and Hugging Face show; in patterns, * stands
// for anything, points included, ? for one character and [ab] for one of those.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::recipe {

struct ParamGroup {
  std::string match;
  std::optional<double> lr_scale = {};      // times optim.lr
  std::optional<double> weight_decay = {};  // of every parameter that matches, norms and biases too
  std::optional<bool> frozen = {};
  std::string kind = {};  // an optimizer's name; empty: as optim.name says
};

// ConfigError 142 names the group and what was expected.
std::vector<ParamGroup> read_groups(const std::string& text);
std::string write_groups(const std::vector<ParamGroup>& groups);  // that reads back to the same

// "a.*, b.*" to its patterns.
std::vector<std::string> read_patterns(const std::string& text);

bool matches(const std::string& pattern, const std::string& name);

}  // namespace lockstep::recipe
