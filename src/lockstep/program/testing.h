// Models and layouts drawn at random, for the property tests of this folder.
#pragma once

#include <map>
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

// Half of the cases run where kernels add their own sums (Kernels::adds_own_sums), as on a GPU.
inline void choose_kernels(Case& c, Draw& draw) {
  static const kernels::Kernels own_sums = [] {
    kernels::Kernels table = kernels::kernels_for(device::Kind::cpu);
    table.adds_own_sums = true;
    return table;
  }();
  if (draw.below(2) == 0) return;
  c.layout.kernels = &own_sums;
  c.words += "own sums, ";
}

// Freezes some parameters, keeps some of these quantized, and gives some matrices to a second rule that needs
// them whole and keeps three numbers for each. Weights of one product are treated alike, and so are tied
// ones.
inline void treat_some(Case& c, Draw& draw) {
  choose_kernels(c, draw);
  if (draw.below(3) == 0) return;
  const uint32_t frozen_of_four = draw.below(4), whole_of_four = draw.below(4);
  c.layout.rules.push_back({.state =
                                [](const device::Shape&) {
                                  return std::vector<StateRule::State>{{"s", device::DType::f32, {3}}};
                                },
                            .scratch = [](const device::Shape& of) { return 4 * of.numel(); }});
  std::map<std::string, model::Treatment> treatments;
  model::Treatment last;
  for (const model::Block& block : c.model->blocks) {
    for (const model::ParamSpec& spec : block.params()) {
      if (!spec.holds_values()) continue;
      const bool whole = spec.shape.rank() == 2 && draw.below(4) < whole_of_four;
      model::Treatment drawn{.frozen = draw.below(4) < frozen_of_four, .rule = whole ? 1 : 0, .whole = whole};
      if (drawn.frozen && spec.shape.rank() == 2 && !spec.table && draw.below(2) == 0)
        drawn.format = kernels::Quantized::nf4;
      if (!spec.joined) last = drawn;
      treatments[spec.name] = last;
      const bool quantized = last.format != kernels::Quantized::none;
      c.words += quantized ? "q" : last.frozen ? "f" : last.whole ? "w" : ".";
    }
  }
  treatments.begin()->second = {};
  c.words += " ";
  for (model::Block& block : c.model->blocks) {
    for (const model::ParamSpec& spec : block.params())
      block.treat(spec.name, treatments.at(spec.holds_values() ? spec.name : spec.tied_to));
  }
}

}  // namespace lockstep::program
