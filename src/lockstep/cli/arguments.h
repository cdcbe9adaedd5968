// The words after a command: declared in a few lines, parsed, and explained by --help.
//
//     int init_command(Arguments& arguments) {
//       std::string file = "recipe.toml";
//       bool force = false;
//       arguments.positional("FILE", file, "where to write it; - is standard output");
//       arguments.flag("--force", force, "overwrite the file");
//       arguments.example("lockstep init first.toml", "write first.toml");
//       if (!arguments.parse()) return 0;  // --help was printed
//       ...
//
// A thin cover over CLI11, which only arguments.cc includes because it is slow to compile. Wrong words are
// ConfigError 109 with the nearest option.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/recipe/schema.h"

namespace lockstep::cli {

std::string version_line();  // "lockstep 0.1.0 (commit)\n"

// What a command says of itself: its words and what each is for.
struct Description {
  struct Row {
    std::string shown, help;  // "--nproc, --nproc-per-node N"
  };
  std::string command, summary;
  std::vector<Row> positionals = {}, options = {}, examples = {};
  std::vector<std::string> option_names = {};  // every spelling
  bool runs_program = false;
};

class Arguments {
 public:
  Arguments(std::string command, std::string summary, std::vector<std::string> words);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // Declarations. The variables keep their value as default and are set by parse(). `names` are all
  // spellings with commas, the longest-lived first: "--nproc,--nproc-per-node".
  void positional(const std::string& name, std::string& value, const std::string& help);
  void rest(const std::string& name, std::vector<std::string>& values, const std::string& help);
  void flag(const std::string& names, bool& value, const std::string& help);
  void option(const std::string& names, std::string& value, const std::string& help);
  void option(const std::string& names, int64_t& value, const std::string& help);
  void option(const std::string& names, double& value, const std::string& help);
  // May be given several times, each with one value.
  void option(const std::string& names, std::vector<std::string>& values, const std::string& help);
  // The rest of the line from the first word that is no option, untouched: another program and its own
  // options.
  void program(const std::string& name, std::vector<std::string>& words, const std::string& help);
  // [RECIPE] [key=value ...]: the first word is the file unless it has a '='.
  void recipe(recipe::RecipeSource& source);
  void example(const std::string& line, const std::string& what);

  bool parse();  // false: help was asked for and printed, or only a description is wanted

  // From now on parse() does nothing: what a command declares is kept for `description`.
  void only_describe() { only_described_ = true; }
  Description description() const;

  const std::vector<std::string>& words() const { return words_; }  // as given, before parsing

 private:
  struct Parser;
  void declare(const std::string& names, const char* value, const std::string& help);
  bool asks(std::initializer_list<const char*> spellings) const;
  void check_values() const;
  void take_program();
  void check_leftovers() const;
  using Row = Description::Row;
  struct Option {
    std::string name, help;
    bool takes_value;
  };
  const Option* find_option(const std::string& word) const;
  std::string help() const;
  static std::string rows_to_text(const std::vector<Row>& rows, size_t width);

  std::string command_, summary_;
  std::vector<std::string> words_;
  std::vector<Row> positionals_, options_, examples_;
  std::vector<Option> option_names_;  // every spelling
  std::vector<std::string>* program_ = nullptr;
  bool help_asked_ = false, only_described_ = false;
  recipe::RecipeSource* recipe_ = nullptr;
  std::vector<std::string>* rest_ = nullptr;
  const std::string* last_positional_ = nullptr;
  std::vector<std::string> recipe_words_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace lockstep::cli
