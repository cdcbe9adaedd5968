#include "lockstep/cli/arguments.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "lockstep/base/build_info.h"
#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/cli/spaced_keys.h"
#include "lockstep/recipe/other_names.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

// What holds where the option is left out, unless the help says so itself.
std::string with_default(const std::string& help, const std::string& value) {
  return value.empty() || help.find("default") != std::string::npos ? help : help + "; default: " + value;
}

// For a key written as an option, also under the name that other trainers have for it; empty: it is none.
std::string remedy_among_keys(const std::string& bare, bool takes_recipe) {
  if (!takes_recipe && recipe::find_key(bare) == nullptr) return "";
  if (const std::string_view advice = recipe::advice_for(bare); !advice.empty()) return std::string(advice);
  const recipe::Key* key = recipe::key_called(bare);
  return key == nullptr ? "" : fmt::format("recipe keys have no dashes: write {}=VALUE", key->name);
}

}  // namespace

std::string version_line() {
  return fmt::format("lockstep {} ({}{})\n", base::kVersion, std::string(base::source_commit()).substr(0, 12),
                     base::source_modified() ? ", modified" : "");
}

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
  last_positional_ = &value;
  positionals_.push_back({name, help});
}

void Arguments::rest(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  parser_->app.add_option(name, values);
  rest_ = &values;
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
    return base::parse_number(word) ? "" : base::quoted(word) + " is not an integer";
  });
  declare(names, " N", with_default(help, value > 0 ? std::to_string(value) : ""));
}

void Arguments::option(const std::string& names, double& value, const std::string& help) {
  parser_->app
      .add_option_function<std::string>(
          names, [&value](const std::string& word) { value = *base::parse_number<double>(word); })
      ->take_last()
      ->check([](const std::string& word) {
        return base::parse_number<double>(word) ? "" : base::quoted(word) + " is not a number";
      });
  declare(names, " X", with_default(help, fmt::format("{}", value)));
}

void Arguments::option(const std::string& names, std::vector<std::string>& values, const std::string& help) {
  parser_->app
      .add_option_function<std::vector<std::string>>(
          names, [&values](const std::vector<std::string>& words) { values = words; })
      ->take_all()
      ->allow_extra_args(false);
  declare(names, " VALUE", help);
}

// Help leaves out spellings with underscores: each has a twin with dashes.
void Arguments::declare(const std::string& names, const char* value, const std::string& help) {
  std::string shown;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    option_names_.push_back({name, help, *value != '\0'});
    if (name.find('_') == std::string::npos) shown += (shown.empty() ? "" : ", ") + name;
    begin = end + 1;
  }
  options_.push_back({shown + value, help});
}

void Arguments::recipe(recipe::RecipeSource& source) {
  recipe_ = &source;
  parser_->app.add_option("RECIPE", recipe_words_);
  positionals_.push_back(
      {"RECIPE", "a TOML file; default: a small built-in recipe (`lockstep explain recipe`)"});
  positionals_.push_back(
      {"KEY=VALUE ...", "overrides, such as optim.lr=1e-3; `lockstep explain` lists the keys"});
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
bool Arguments::asks(std::initializer_list<const char*> spellings) const {
  const auto end = std::find(words_.begin(), words_.end(), "--");
  return std::find_first_of(words_.begin(), end, spellings.begin(), spellings.end()) != end;
}

const Arguments::Option* Arguments::find_option(const std::string& word) const {
  for (const Option& option : option_names_) {
    if (word == option.name || word.starts_with(option.name + "=")) return &option;
  }
  return nullptr;
}

// Said before the parser takes the word behind an option for its value, or complains in its own words.
namespace {

bool names_place(const std::string& option) {
  return option == "--run" || option == "--resume" || option == "--folder" || option == "--out";
}

}  // namespace

void Arguments::check_values() const {
  for (size_t i = 0; i < words_.size() && words_[i] != "--"; ++i) {
    const Option* option = find_option(words_[i]);
    if (option == nullptr && program_ && !words_[i].starts_with("-")) return;  // the program's own begin here
    if (option == nullptr || !option->takes_value) continue;
    const bool joined = words_[i].size() > option->name.size();  // --nproc=4
    const bool last = !joined && i + 1 == words_.size();
    const std::string value = joined ? words_[i].substr(option->name.size() + 1) : last ? "" : words_[++i];
    const bool another =
        !joined && (find_option(value) || recipe::find_key(value.substr(0, value.find('='))));
    // An empty folder is a variable that is not set: the default would be another run's.
    const bool unset = value.empty() && !last && (joined || names_place(option->name));
    if (!last && !another && !unset) continue;
    throw base::ConfigError(109, fmt::format("{} needs a value{}: {}", option->name,
                                             another ? " before " + base::quoted(value)
                                             : unset ? ", but it is empty"
                                                     : "",
                                             option->help));
  }
}

Description Arguments::description() const {
  Description all{command_, summary_, positionals_, options_, examples_, {}, program_ != nullptr};
  for (const Option& option : option_names_) all.option_names.push_back(option.name);
  return all;
}

bool Arguments::parse() {
  if (only_described_) return false;
  if (!program_ && asks({"--help", "-h"})) {
    std::fputs(help().c_str(), stdout);
    return false;
  }
  if (!program_ && asks({"--version"})) {
    std::fputs(version_line().c_str(), stdout);
    return false;
  }
  check_values();
  try {
    parser_->app.parse(
        std::vector<std::string>(words_.rbegin(), words_.rend()));  // CLI11 takes them last first
  } catch (const CLI::ParseError& error) {
    throw base::ConfigError(109, fmt::format("{}: {}; see `lockstep {} --help`", command_,
                                             base::cut_to_width(error.what(), 300), command_));
  }
  if (program_) take_program();
  if (help_asked_) {
    std::fputs(help().c_str(), stdout);
    return false;
  }
  check_leftovers();
  if (rest_) {
    std::vector<std::string> words = *rest_;
    if (last_positional_) words.insert(words.begin(), *last_positional_);  // a key in its place, perhaps
    refuse_spaced_keys(words);
  }
  if (recipe_) {
    std::error_code error;
    const bool names_file =
        !recipe_words_.empty() && std::filesystem::is_regular_file(recipe_words_[0], error);
    refuse_spaced_keys({recipe_words_.begin() + names_file, recipe_words_.end()});
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
    const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    std::vector<std::string> names;
    for (const Option& option : option_names_) names.push_back(option.name);
    const std::string near = name.starts_with("-") ? base::nearest_word(name, names) : "";
    std::string remedy = name.starts_with("-") ? remedy_among_keys(bare, recipe_ != nullptr) : "";
    if (remedy.empty()) {
      remedy = near.empty() ? fmt::format("see `lockstep {} --help`", command_)
                            : fmt::format("did you mean {}?", near);
    }
    throw base::ConfigError(109,
                            fmt::format("{}: unknown argument {}; {}", command_, base::quoted(word), remedy));
  }
}

// Two columns, or, where the first is too wide for that, one below the other: a command is never cut.
std::string Arguments::rows_to_text(const std::vector<Row>& rows, size_t width) {
  constexpr size_t kLeastForHelp = 30;
  size_t widest = 0;
  terminal::Table side_by_side({});
  std::string stacked;
  for (const Row& row : rows) {
    widest = std::max(widest, base::display_width(row.shown) + 2);
    side_by_side.add({"  " + row.shown, row.help});
    terminal::Table below({});
    below.add({"    ", row.help});
    stacked += "  " + row.shown + "\n" + below.to_text(width);
  }
  return widest <= width / 2 && widest + kLeastForHelp <= width ? side_by_side.to_text(width) : stacked;
}

std::string Arguments::help() const {
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  const size_t width = terminal.width;
  const std::string options = options_.empty() ? "" : " [options]";
  std::string words;
  for (const Row& row : positionals_) words += program_ ? " " + row.shown : fmt::format(" [{}]", row.shown);
  const std::string usage = "lockstep " + command_ + (program_ ? options + words : words + options);
  std::string out = base::hanging(usage, width, 4) + "\n\n" + base::hanging(summary_, width, 0) + "\n";
  for (const std::vector<Row>* rows : {&positionals_, &options_}) {
    if (!rows->empty()) out += "\n" + rows_to_text(*rows, width);
  }
  return examples_.empty() ? out
                           : out + "\n" + terminal.paint("examples", terminal::Colour::bold) + "\n" +
                                 rows_to_text(examples_, width);
}

}  // namespace lockstep::cli
