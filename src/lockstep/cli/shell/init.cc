// lockstep init: a commented recipe to start from; on a terminal a few questions, and a short one.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/shell/init_questions.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

constexpr const char* kSchemaFile = "lockstep.schema.json";

// What editors with a TOML plugin look for in the first line.
std::string with_schema(const std::string& text) {
  return fmt::format("#:schema ./{}\n{}", kSchemaFile, text);
}

std::string answered_recipe(const std::string& file) {
  const terminal::Terminal screen = terminal::terminal_of(STDOUT_FILENO);
  const Ask ask = [&](const std::string& question,
                      const std::string& otherwise) -> std::optional<std::string> {
    print("{} {}", question,
          otherwise.empty() ? "> " : screen.paint("[" + otherwise + "]", terminal::Colour::dim) + " > ");
    std::fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  };
  const auto say = [&](const std::string& why) {
    print("  {}\n", screen.paint(why, terminal::Colour::yellow));
  };
  print("A few questions; Enter takes what is in brackets, Ctrl-C leaves.\n\n");
  const std::string name = std::filesystem::path(file).stem();
  const auto chosen = ask_for_recipe(name.empty() || name == "recipe" ? "first" : name, ask, say);
  if (!chosen) {
    print("\n");
    throw base::ConfigError(
        730, fmt::format("the answers ended before the recipe was complete: {} was not written; "
                         "`lockstep init --all {}` writes every key without asking",
                         file, file));
  }
  print("\n");
  return short_recipe(*chosen);
}

}  // namespace

int init_command(Arguments& arguments) {
  std::string file = "recipe.toml";
  bool force = false, all = false, schema = false;
  arguments.positional("FILE", file, "output file (recipe.toml); - for standard output");
  arguments.flag("--all", all, "every key with its meaning and default, without questions; in a pipe always");
  arguments.flag(
      "--schema", schema,
      "also write lockstep.schema.json, and name it in the first line: VS Code (Even Better TOML) and "
      "other editors then complete and check keys");
  arguments.flag("--force", force, "overwrite an existing file");
  arguments.example("lockstep init first.toml", "a few questions, then: lockstep train first.toml");
  arguments.example("lockstep init first.toml --all --schema", "every key, with completion in VS Code");
  if (!arguments.parse()) return 0;

  if (file == "-") {
    std::fputs(recipe::commented_recipe().c_str(), stdout);
    return 0;
  }
  std::error_code ignored;
  if (!force && std::filesystem::exists(std::filesystem::symlink_status(file, ignored))) {
    throw base::ConfigError(110, fmt::format("{} already exists; choose another name or add --force", file));
  }
  const bool asks = !all && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  std::string text = asks ? answered_recipe(file) : recipe::commented_recipe();
  if (schema) {
    const std::filesystem::path beside = std::filesystem::path(file).parent_path() / kSchemaFile;
    base::write_file_durable(beside.string(), recipe::json_schema());
    text = with_schema(text);
  }
  base::write_file_durable(file, text);
  print("wrote {}{}\ntrain it with: lockstep train {}\n", file,
        asks ? "" : ": every key with its meaning and default", file);
  return 0;
}

}  // namespace lockstep::cli
