// lockstep init: a commented recipe to start from.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::cli {

int init_command(Arguments& arguments) {
  std::string file = "recipe.toml";
  bool force = false;
  arguments.positional("FILE", file, "output file (recipe.toml); - for standard output");
  arguments.flag("--force", force, "overwrite an existing file");
  arguments.example("lockstep init first.toml", "then edit it and: lockstep train first.toml");
  if (!arguments.parse()) return 0;

  if (file == "-") {
    std::fputs(recipe::commented_recipe().c_str(), stdout);
    return 0;
  }
  std::error_code ignored;
  if (!force && std::filesystem::exists(std::filesystem::symlink_status(file, ignored))) {
    throw base::ConfigError(110, fmt::format("{} already exists; choose another name or add --force", file));
  }
  base::write_file_durable(file, recipe::commented_recipe());
  print("wrote {}: every key with its meaning and default\ntrain it with: lockstep train {}\n", file, file);
  return 0;
}

}  // namespace lockstep::cli
