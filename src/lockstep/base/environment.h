// The LOCKSTEP_ variables of the environment: one table, which `lockstep explain environment` prints.
//
//     if (base::environment("LOCKSTEP_GRAPH") == "off") ...
//
// A test looks through the sources: what reads one that is not here, or reads it otherwise, does not pass.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::base {

struct EnvironmentVariable {
  enum class SetBy {
    user,      // to change what Lockstep does
    launcher,  // for the ranks that it starts
    tests,     // by who runs them
  };
  const char* name;
  SetBy set_by;
  const char* meaning;
  const char* read_by;  // folders of src/lockstep, with blanks between them
};
const std::vector<EnvironmentVariable>& environment_variables();

// The value of any variable, ours or another's; nothing where it is not set.
std::optional<std::string> environment(const std::string& name);

}  // namespace lockstep::base
