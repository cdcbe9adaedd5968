// lockstep schema: the recipe's JSON Schema.
#include "lockstep/recipe/schema.h"

#include <cstdio>

#include "lockstep/cli/commands.h"

namespace lockstep::cli {

int schema_command(Arguments& arguments) {
  bool json = false;
  arguments.flag("--json", json, "the same: it is always JSON");
  arguments.example("lockstep schema > recipe.schema.json",
                    "editors with a TOML plug-in check recipes with it");
  if (!arguments.parse()) return 0;
  std::fputs(recipe::json_schema().c_str(), stdout);
  return 0;
}

}  // namespace lockstep::cli
