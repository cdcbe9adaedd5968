// Layouts by a few words: "data=4", "data=2,zero=3,pipeline=2,tensor=2", "pipeline=4,schedule=gpipe".
//
// What is not named is 1, or as recipes have it. Words are what `verify` prints and takes; overrides() are
// the recipe's keys for the same thing.
#pragma once

#include <string>
#include <vector>

#include "lockstep/recipe/recipe.h"

namespace lockstep::plan {

struct Layout {
  int data = 1, tensor = 1, context = 1, pipeline = 1;
  int zero = 0, shard = 0;  // shard 0: all data ranks
  bool sequence = false;
  std::string form = "ring";      // of context: ring, heads
  std::string schedule = "1f1b";  // of the pipeline
  int chunks = 1;                 // pieces of the model that a stage holds; 2 with interleaved unless named

  int64_t ranks() const { return int64_t{1} * data * tensor * context * pipeline; }
  // Same bits as one rank; otherwise within a tolerance, because a sum inside a product is cut.
  bool exact() const { return tensor == 1 && context == 1; }
  std::string words() const;
  std::vector<std::string> overrides() const;  // key=value
  bool operator==(const Layout&) const = default;
};

Layout parse_layout(const std::string& words);  // ConfigError 182 names the word
// Several, with blanks or ';' between them.
std::vector<Layout> parse_layouts(const std::string& list);

// Everything worth trying on at most so many ranks. Some may not suit the model: the recipe's check says so.
std::vector<Layout> usual_layouts(int64_t ranks);

// As one rank would train it: every key of a layout at its default.
void take_layout_off(recipe::Recipe& recipe);

}  // namespace lockstep::plan
