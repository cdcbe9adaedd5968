// Parameter groups as the words of a recipe name them, read again for the reference. For tests.
#pragma once

#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/run/reference/words.h"

namespace lockstep::reference {

// Stars only.
inline bool like(const std::string& pattern, const std::string& name, size_t p = 0, size_t n = 0) {
  if (p == pattern.size()) return n == name.size();
  if (pattern[p] == '*')
    return like(pattern, name, p + 1, n) || (n < name.size() && like(pattern, name, p, n + 1));
  return n < name.size() && pattern[p] == name[n] && like(pattern, name, p + 1, n + 1);
}

inline std::vector<std::string> parts(const std::string& text, char at) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) {
    if (!part.empty()) all.push_back(part);
  }
  return all;
}

struct Group {
  bool frozen = false;
  double rate = 1;
  std::optional<double> decay;
  std::string rule;
};

// Embeddings are block 0, layer N is N + 1, what follows the layers the last.
inline double block_of(const std::string& name, double layers) {
  for (const char* word : {".h.", "layers."}) {
    if (const size_t at = name.find(word); at != std::string::npos)
      return std::stod(name.substr(at + std::string(word).size())) + 1;
  }
  const bool embedding = name.find("wte") != std::string::npos || name.find("wpe") != std::string::npos ||
                         name.find("embed") != std::string::npos;
  return embedding ? 0 : layers + 1;
}

inline Group group_of(const Words& words, const std::string& name) {
  Group group{.rule = words.text("optim.name", "adamw")};
  const auto any = [&](const std::string& key) {
    for (const std::string& pattern : parts(words.text(key, ""), ',')) {
      if (like(pattern, name)) return true;
    }
    return false;
  };
  group.frozen = (!words.text("tune.train", "").empty() && !any("tune.train")) || any("tune.freeze");
  const double layers = words.number("model.layers", 4);
  double scale = 1;
  for (const std::string& text : parts(words.text("optim.groups", ""), ',')) {
    const std::vector<std::string> own = parts(text, ' ');
    if (!like(own[0], name)) continue;
    for (const std::string& word : own) {
      const std::string value = word.substr(word.find('=') + 1);
      if (word.starts_with("lr_scale=")) scale = std::stod(value);
      if (word.starts_with("weight_decay=")) group.decay = std::stod(value);
      if (word.starts_with("kind=")) group.rule = value;
      if (word.starts_with("frozen=")) group.frozen = value == "true";
    }
  }
  group.rate = scale * std::pow(words.number("optim.layer_lr_decay", 1), layers + 1 - block_of(name, layers));
  return group;
}

}  // namespace lockstep::reference
