// lockstep explain: what a key, a section, an error code, a variable of the environment or a recipe is. Step
// programs and their memory are explained in explain_program.cc.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/error_catalogue.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/model/families/family.h"
#include "lockstep/recipe/other_names.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/terminal/pager.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

int print_json(const Json& json) {
  print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  return 0;
}

Json json_of(const recipe::Key& key) {
  return {{"key", key.name},
          {"meaning", key.meaning},
          {"type", recipe::type_text(key)},
          {"allowed", recipe::allowed_text(key)},
          {"default", Json::parse(recipe::default_text(key))},
          {"counts_with", key.counts.when},
          {"example", key.example}};
}

// Where the recipe that the program carries says something else than the default.
std::string built_in_text(const recipe::Key& key) {
  const recipe::Resolved built_in = recipe::read_recipe({.default_recipe = true});
  const std::string value = recipe::value_text(key, built_in.recipe);
  return value == recipe::default_text(key) ? ""
                                            : value + " in the built-in recipe, which is used without a file";
}

int explain_key(const recipe::Key& key, bool json) {
  if (json) return print_json(json_of(key));
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  terminal::Table table({});
  const std::string allowed = recipe::allowed_text(key);
  table.add({"type", recipe::type_text(key)});
  if (!allowed.empty()) table.add({"allowed", allowed});
  table.add({"default", recipe::default_text(key)});
  if (const std::string built_in = built_in_text(key); !built_in.empty()) table.add({"", built_in});
  if (!key.counts.when.empty()) table.add({"counts with", key.counts.when});
  table.add({"example", key.example});
  print("{}\n{}\n\n{}", terminal.paint(key.name, terminal::Colour::bold),
        base::join(base::wrapped(key.meaning, terminal.width), "\n"), table.to_text(terminal));
  return 0;
}

int explain_error(const base::ErrorExplanation& row, bool json) {
  if (json) {
    return print_json({{"code", base::code_name(row.number)},
                       {"title", row.title},
                       {"causes", row.causes},
                       {"remedies", row.remedies}});
  }
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  terminal::Table table({});
  for (const std::string& cause : row.causes) table.add({&cause == &row.causes[0] ? "causes" : "", cause});
  for (const std::string& remedy : row.remedies)
    table.add({&remedy == &row.remedies[0] ? "remedies" : "", remedy});
  print("{}  {}\n\n{}", terminal.paint(base::code_name(row.number), terminal::Colour::bold), row.title,
        table.to_text(terminal));
  return 0;
}

// The keys of one section, or of all for an empty name.
int explain_section(const std::string& wanted, bool json) {
  Json rows = Json::array();
  const size_t width = terminal::terminal_of(STDOUT_FILENO).width;
  for (const recipe::Section& section : recipe::recipe_sections()) {
    if (!wanted.empty() && section.name != wanted) continue;
    terminal::Table table({});
    for (const recipe::Key& key : recipe::recipe_keys()) {
      if (key.section() != section.name) continue;
      rows.push_back(json_of(key));
      table.add({"  " + key.name, recipe::default_text(key), key.meaning});
    }
    const std::string head = base::hanging(fmt::format("[{}] {}", section.name, section.meaning), width, 2);
    if (!json) print("{}\n{}\n", head, table.to_text(width));
  }
  return json ? print_json(rows) : 0;
}

int explain_recipe(const std::vector<std::string>& words) {
  Arguments arguments(
      "explain recipe",
      "Show every key's value, and whether it is a default, from the file or from the command line.", words);
  recipe::RecipeSource source;
  bool json = false, changed = false;
  arguments.recipe(source);
  arguments.flag("--changed", changed, "only non-default values");
  arguments.flag("--json", json, "print as JSON");
  arguments.example("lockstep explain recipe first.toml optim.lr=1e-3", "what would be trained");
  if (!arguments.parse()) return 0;

  recipe::Resolved resolved = recipe::read_recipe(source);
  model::apply_preset(resolved);
  terminal::Table table({"key", "value", "from"});
  Json rows = Json::object();
  for (const recipe::Key& key : recipe::recipe_keys()) {
    const std::string value = recipe::value_text(key, resolved.recipe), origin = resolved.origin.at(key.name);
    if (changed && value == recipe::default_text(key)) continue;
    table.add({key.name, value, origin});
    rows[key.name] = {{"value", Json::parse(value)}, {"from", origin}};
  }
  if (json) return print_json(rows);
  print("{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
  return 0;
}

// The LOCKSTEP_ variables, by who sets them.
int explain_environment(bool json) {
  using SetBy = base::EnvironmentVariable::SetBy;
  struct Part {
    SetBy set_by;
    const char *name, *title;
  };
  constexpr Part kParts[] = {{SetBy::user, "user", "For users:"},
                             {SetBy::launcher, "launcher", "Set by the launcher for its ranks:"},
                             {SetBy::tests, "tests", "For tests:"}};
  Json rows = Json::array();
  for (const Part& part : kParts) {
    terminal::Table table({});
    for (const base::EnvironmentVariable& row : base::environment_variables()) {
      if (row.set_by != part.set_by) continue;
      rows.push_back({{"variable", row.name},
                      {"set_by", part.name},
                      {"meaning", row.meaning},
                      {"read_by", row.read_by}});
      table.add({fmt::format("  {}", row.name), row.meaning});
    }
    if (!json) print("{}\n{}\n", part.title, table.to_text(terminal::terminal_of(STDOUT_FILENO)));
  }
  return json ? print_json(rows) : 0;
}

int explain_word(const std::string& word, bool json) {
  if (word == "environment") return explain_environment(json);
  if (const recipe::Key* key = recipe::find_key(word)) return explain_key(*key, json);
  for (const recipe::Section& section : recipe::recipe_sections()) {
    // In brackets too, as in a recipe: `explain memory` is about a step's memory, `explain '[memory]'` the
    // section.
    if (word == section.name || word == "[" + section.name + "]") return explain_section(section.name, json);
  }
  if (const std::optional<int> number = base::parse_code(word)) {
    if (const base::ErrorExplanation* row = base::find_error(*number)) return explain_error(*row, json);
    throw base::ConfigError(111, fmt::format("{} is not a Lockstep error code; codes look like LS0107",
                                             base::code_name(*number)));
  }
  throw base::ConfigError(111, fmt::format("{} is not a key, section or error code; {}", base::quoted(word),
                                           recipe::remedy_for(word)));
}

}  // namespace

int explain_command(Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words();
  std::optional<terminal::Pager> pager;  // not where only a description is wanted
  if (!words.empty()) {                  // subjects with words of their own
    pager.emplace();
    const std::vector<std::string> after(words.begin() + 1, words.end());
    if (words[0] == "recipe") return explain_recipe(after);
    if (words[0] == "program") return explain_program(after);
    if (words[0] == "memory") return explain_memory(after);
    if (words[0] == "parameters") return explain_parameters(after);
  }
  std::string word;
  bool json = false;
  arguments.positional(
      "WHAT", word,
      "a key, a section, an error code, environment, or recipe, program, memory or parameters, which have "
      "a --help of their own; nothing lists every key");
  arguments.flag("--json", json, "print it as JSON");
  arguments.example("lockstep explain optim.lr", "a key");
  arguments.example("lockstep explain optim", "a section");
  arguments.example("lockstep explain LS0107", "an error");
  arguments.example("lockstep explain environment", "the LOCKSTEP_ variables");
  arguments.example("lockstep explain recipe first.toml", "every value and where it comes from");
  arguments.example("lockstep explain program first.toml", "the instructions of one training step");
  arguments.example("lockstep explain program first.toml --nproc 4 parallel.zero=3",
                    "those of a rank among four");
  arguments.example("lockstep explain memory first.toml", "what takes how much memory, and when");
  arguments.example("lockstep explain parameters first.toml tune.freeze='*.wte.*'",
                    "every parameter by name, and how it is trained");
  if (!arguments.parse()) return 0;
  if (!pager) pager.emplace();
  return word.empty() ? explain_section("", json) : explain_word(word, json);
}

}  // namespace lockstep::cli
