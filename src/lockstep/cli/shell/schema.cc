// lockstep schema: the recipe's JSON Schema.
#include "lockstep/recipe/schema.h"

#include <cstdio>

#include "lockstep/cli/commands.h"

namespace lockstep::cli {

int schema_command(Arguments& arguments) {
  bool json = false;
  arguments.flag("--json", json, "same: the output is always JSON");
  arguments.example("lockstep schema > recipe.schema.json",
                    "for editors with a TOML plugin that validates recipes");
  if (!arguments.parse()) return 0;
  std::fputs(recipe::json_schema().c_str(), stdout);
  return 0;
}

}  // namespace lockstep::cli
