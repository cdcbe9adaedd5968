// Changes that make a step fit: as a table, and with --apply N written into the recipe file.
#pragma once

#include <string>
#include <vector>

#include "lockstep/recipe/schema.h"
#include "lockstep/run/session/remedy_menu.h"

namespace lockstep::cli {

// The table for people. `usd_per_second` 0: no price is known, and there is no column of dollars (to the end
// of the run).
struct MenuMoney {
  int64_t steps = 0;
  double usd_per_second = 0;
  double besides_usd = 0;  // what evaluations and saves take, where they are known
};
std::string menu_text(const std::vector<run::MenuRow>& menu, const MenuMoney& money, size_t width);

// Writes row `number` (from 1) of the menu, and says so. ConfigError 109: there is no such row, or no file.
void apply_remedy(const recipe::RecipeSource& source, const std::vector<run::MenuRow>& menu, int64_t number);

}  // namespace lockstep::cli
