// Models and layouts drawn at random, for the property tests of this folder.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lockstep/model/families/family.h"
#include "lockstep/program/compile.h"

namespace lockstep::program {

struct Case {
  std::unique_ptr<model::Model> model;
  Layout layout;
  std::string words;  // what was drawn, for a failing test to print
};

// Draws from a seed.
struct Draw {
  std::mt19937 random;
  explicit Draw(uint32_t seed) : random(seed) {}
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random() % n); }
  std::string pick(const std::vector<std::string>& options) { return options[random() % options.size()]; }
};

// The model of these recipe words over 50 tokens; the layout is still to be filled.
inline Case case_of(const std::vector<std::string>& words, device::DType type) {
  recipe::Resolved resolved = recipe::read_recipe({.file = "", .overrides = words});
  model::resolve_model(resolved, 50);
  Case c;
  c.model = std::make_unique<model::Model>(model::build_model(resolved.recipe, type));
  c.layout.slice.seq_len = resolved.recipe.data.seq_len;
  c.layout.kernels = &kernels::kernels_for(device::Kind::cpu);
  for (const std::string& word : words) c.words += word + " ";
  return c;
}

}  // namespace lockstep::program
