// What tests of random recipes draw from, and how long they go on: LOCKSTEP_SECONDS, from LOCKSTEP_FIRST_SEED
// on.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/program/testing.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {

using program::Draw;
using Words = std::vector<std::string>;

struct Drawn {
  Words recipe;  // what decides the numbers
  Words layout;  // what must not
  int world = 1, per_node = 0;
  std::string engine = "shm";
  bool cuts_sums = false;  // in a product, so that bits may differ from those of one rank
  bool rounds = false;     // computes in bf16
  std::string words() const {
    return fmt::format("{} ranks, {} a node, {}: {} | {}", world, per_node, engine, fmt::join(recipe, " "),
                       fmt::join(layout, " "));
  }
};

inline int from(Draw& draw, int least, int most) {
  return least + static_cast<int>(draw.below(static_cast<uint32_t>(most - least + 1)));
}

inline recipe::Resolved recipe_of(const Words& recipe, const Words& layout) {
  Words words = {"run.steps=2", "run.threads=1", "optim.clip=0", "log.eval_every=0", "log.eval_batches=3"};
  words.insert(words.end(), recipe.begin(), recipe.end());
  words.insert(words.end(), layout.begin(), layout.end());
  return tiny_recipe(words);
}

inline double seconds_requested(double usual) {
  const char* requested = std::getenv("LOCKSTEP_SECONDS");
  return requested != nullptr ? std::atof(requested) : usual;
}

inline uint32_t first_seed() {
  const char* requested = std::getenv("LOCKSTEP_FIRST_SEED");
  return static_cast<uint32_t>(requested != nullptr ? std::atoi(requested) : 1);
}

}  // namespace lockstep::run
