#include "lockstep/cli/apply.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/money.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/print.h"
#include "lockstep/recipe/edit_toml.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

// The file as it would be read again, or the reason why not.
void check_edited(const recipe::RecipeSource& source, const std::string& text,
                  const std::vector<std::string>& words) {
  const std::string trial = source.file + ".new";
  base::write_file_durable(trial, text);
  try {
    const recipe::Resolved read = recipe::read_recipe({.file = trial});
    recipe::Recipe wanted = read.recipe;
    for (const std::string& word : words)
      recipe::set_value(wanted, word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
    if (!recipe::differing_keys(read.recipe, wanted).empty())
      throw base::ConfigError(109,
                              fmt::format("{} could not be edited; add {} yourself", source.file, words[0]));
  } catch (...) {
    std::filesystem::remove(trial);
    throw;
  }
  std::filesystem::remove(trial);
}

}  // namespace

std::string menu_text(const std::vector<run::MenuRow>& menu, const MenuMoney& money, size_t width) {
  const bool priced = money.usd_per_second > 0;
  std::vector<std::string> heading{"", "changes that fit, cheapest first", "GiB", "step", "what it costs"};
  if (priced) heading.insert(heading.begin() + 4, "to the end");
  terminal::Table table(heading);
  table.align_right(2), table.align_right(3);
  if (priced) table.align_right(4);
  for (size_t k = 0; k < menu.size(); ++k) {
    const run::MenuRow& row = menu[k];
    std::vector<std::string> cells{std::to_string(k + 1), row.change,
                                   fmt::format("{:.2f}", static_cast<double>(row.peak_bytes) / (1 << 30)),
                                   row.step_seconds > 0 ? base::human_duration(row.step_seconds) : "-",
                                   row.price};
    if (priced)
      cells.insert(cells.begin() + 4,
                   base::dollars(money.besides_usd +
                                 money.usd_per_second * row.step_seconds * static_cast<double>(money.steps)));
    table.add(cells);
  }
  return table.to_text(width);
}

void apply_remedy(const recipe::RecipeSource& source, const std::vector<run::MenuRow>& menu, int64_t number) {
  if (number < 1 || number > static_cast<int64_t>(menu.size()))
    throw base::ConfigError(109, menu.empty()
                                     ? "--apply: there is nothing to apply"
                                     : fmt::format("--apply {}: expected 1 to {}", number, menu.size()));
  if (source.file.empty())
    throw base::ConfigError(109,
                            "--apply writes into a recipe file; name one (`lockstep init FILE` makes it)");
  std::istringstream in(menu[static_cast<size_t>(number - 1)].change);
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> keys;
  recipe::Recipe recipe;
  for (std::string word; in >> word;) {
    const std::string key = word.substr(0, word.find('='));
    recipe::set_value(recipe, key, word.substr(word.find('=') + 1));
    keys.emplace_back(key, recipe::value_text(*recipe::find_key(key), recipe));
    words.push_back(word);
  }
  const std::string text = recipe::edit_toml(base::read_file(source.file), keys);
  check_edited(source, text, words);
  base::write_file_durable(source.file, text);
  print("\n{}: {} written\n", source.file, menu[static_cast<size_t>(number - 1)].change);
}

}  // namespace lockstep::cli
