#include "lockstep/cli/arguments.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/table.h"
#include "lockstep/base/terminal.h"
#include "lockstep/base/text.h"

namespace lockstep::cli {

namespace {

// What holds where the option is left out, unless the help says so itself.
std::string with_default(const std::string& help, const std::string& value) {
  return value.empty() || help.find("default") != std::string::npos ? help : help + "; default: " + value;
}

}  // namespace

struct Arguments::Parser {
  CLI::App app;
};

Arguments::Arguments(std::string command, std::string summary, std::vector<std::string> words)
    : command_(std::move(command)),
      summary_(std::move(summary)),
      words_(std::move(words)),
      parser_(std::make_unique<Parser>()) {
  parser_->app.set_help_flag();  // ours is printed instead
  parser_->app.allow_extras();   // check_leftovers() knows the nearest option
}

Arguments::~Arguments() = default;

void Arguments::positional(const std::string& name, std::string& value, const std::string& help) {
  parser_->app.add_option(name, value);
  positionals_.push_back({name, help});
}

void Arguments::rest(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  parser_->app.add_option(name, values);
  positionals_.push_back({name + " ...", help});
}

void Arguments::flag(const std::string& names, bool& value, const std::string& help) {
  parser_->app.add_flag(names, value);
  declare(names, "", help);
}

void Arguments::option(const std::string& names, std::string& value, const std::string& help) {
  parser_->app.add_option(names, value)->take_last();  // as torchrun's do: scripts append what they change
  declare(names, " VALUE", with_default(help, value));
}

void Arguments::option(const std::string& names, int64_t& value, const std::string& help) {
  parser_->app.add_option(names, value)->take_last()->check([](const std::string& word) {
    int64_t parsed = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), parsed);
    const bool whole = error == std::errc{} && end == word.data() + word.size();
    return whole ? "" : base::quoted(word) + " is not a whole number";
  });
  declare(names, " N", with_default(help, value > 0 ? std::to_string(value) : ""));
}

// Help leaves out spellings with underscores: each has a twin with dashes.
void Arguments::declare(const std::string& names, const char* value, const std::string& help) {
  std::string shown;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    option_names_.push_back(names.substr(begin, end - begin));
    if (option_names_.back().find('_') == std::string::npos)
      shown += (shown.empty() ? "" : ", ") + option_names_.back();
    begin = end + 1;
  }
  options_.push_back({shown + value, help});
}

void Arguments::recipe(base::RecipeSource& source) {
  recipe_ = &source;
  parser_->app.add_option("RECIPE", recipe_words_);
  positionals_.push_back(
      {"RECIPE", "a TOML file; without one, the small first one (`lockstep explain recipe`)"});
  positionals_.push_back(
      {"KEY=VALUE ...", "changes to it, such as optim.lr=1e-3; `lockstep explain` lists the keys"});
}

void Arguments::program(const std::string& name, std::vector<std::string>& words, const std::string& help) {
  program_ = &words;
  parser_->app.prefix_command();
  parser_->app.add_flag("-h,--help", help_asked_);
  positionals_.push_back({name + " ...", help});
}

void Arguments::example(const std::string& line, const std::string& what) {
  examples_.push_back({line, what});
}

// Behind a program's name --help is that program's own: only the parser knows where that begins.
bool Arguments::asks_help() const {
  if (program_) return help_asked_;
  const auto end = std::find(words_.begin(), words_.end(), "--");
  return std::any_of(words_.begin(), end,
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

bool Arguments::parse() {
  if (asks_help()) {
    std::fputs(help().c_str(), stdout);
    return false;
  }
  try {
    parser_->app.parse(
        std::vector<std::string>(words_.rbegin(), words_.rend()));  // CLI11 takes them last first
  } catch (const CLI::ParseError& error) {
    throw base::ConfigError(109, fmt::format("{}: {}; `lockstep {} --help` shows what it takes", command_,
                                             base::cut_to_width(error.what(), 300), command_));
  }
  if (program_) take_program();
  if (program_ && asks_help()) {
    std::fputs(help().c_str(), stdout);
    return false;
  }
  check_leftovers();
  if (recipe_) {
    const bool has_file = !recipe_words_.empty() && recipe_words_[0].find('=') == std::string::npos;
    if (has_file) recipe_->file = recipe_words_[0];
    recipe_->default_recipe = !has_file;
    recipe_->overrides.assign(recipe_words_.begin() + has_file, recipe_words_.end());
  }
  return true;
}

// What is left is the program's, unless it begins with an option that is not ours.
void Arguments::take_program() {
  std::vector<std::string> left = parser_->app.remaining();
  if (!left.empty() && left[0] == "--")
    left.erase(left.begin());
  else if (!left.empty() && left[0].starts_with("-"))
    return;
  *program_ = std::move(left);
}

void Arguments::check_leftovers() const {
  if (program_ && !program_->empty()) return;
  const std::vector<std::string> leftovers = parser_->app.remaining();
  for (const std::string& word : leftovers) {
    if (word == "--") continue;
    const std::string name = word.substr(0, word.find('='));
    const std::string near = name.starts_with("-") ? base::nearest_word(name, option_names_) : "";
    const std::string remedy = near.empty()
                                   ? fmt::format("`lockstep {} --help` shows what it takes", command_)
                                   : fmt::format("did you mean {}?", near);
    throw base::ConfigError(109,
                            fmt::format("{} does not take {}; {}", command_, base::quoted(word), remedy));
  }
}

// Two columns, or, where the first is too wide for that, one below the other: a command is never cut.
std::string Arguments::rows_to_text(const std::vector<Row>& rows, size_t width) {
  constexpr size_t kLeastForHelp = 30;
  size_t widest = 0;
  base::Table side_by_side({});
  std::string stacked;
  for (const Row& row : rows) {
    widest = std::max(widest, base::display_width(row.shown) + 2);
    side_by_side.add({"  " + row.shown, row.help});
    base::Table below({});
    below.add({"    ", row.help});
    stacked += "  " + row.shown + "\n" + below.to_text(width);
  }
  return widest <= width / 2 && widest + kLeastForHelp <= width ? side_by_side.to_text(width) : stacked;
}

std::string Arguments::help() const {
  const size_t width = base::terminal_of(STDOUT_FILENO).width;
  const std::string options = options_.empty() ? "" : " [options]";
  std::string words;
  for (const Row& row : positionals_) words += program_ ? " " + row.shown : fmt::format(" [{}]", row.shown);
  std::string out = "lockstep " + command_ + (program_ ? options + words : words + options) +
                    fmt::format("\n\n{}\n", summary_);
  for (const std::vector<Row>* rows : {&positionals_, &options_}) {
    if (!rows->empty()) out += "\n" + rows_to_text(*rows, width);
  }
  return examples_.empty() ? out : out + "\nexamples\n" + rows_to_text(examples_, width);
}

}  // namespace lockstep::cli
