// The choices of keys that name a row of a table: a family, a kind of data, an optimizer, an engine.
//
// The tables lie in folders that know the recipe, and the recipe does not know them. So the rows are handed
// down: choices_of() is declared here and written in tables/choices.cc, which sees every table. The rows of
// keys ask it once, when the schema is first looked at; from then on the tables are frozen (base/registry.h),
// and what a program has registered before is validated, explained and suggested like what is built in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::recipe {

struct Choice {
  std::string name;      // "llama"
  std::string describe;  // one line
  // Keys that not every choice cares for: they count only with choices that name them.
  std::vector<std::string> reads;
};

// Of "model.family", "model.activation", "data.kind", "optim.name", "optim.schedule" and "parallel.engine",
// in the table's order; "auto" is none of them.
const std::vector<Choice>& choices_of(std::string_view key);

// Their names, behind those that are no rows, such as "auto".
std::vector<std::string> choice_names(std::string_view key, std::vector<std::string> before = {});

}  // namespace lockstep::recipe
