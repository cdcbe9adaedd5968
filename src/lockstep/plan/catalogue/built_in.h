// The catalogue's files as they stand in the repository, inside the program.
#pragma once

#include <string_view>

namespace lockstep::plan {

std::string_view built_in_devices();
std::string_view built_in_machines();
std::string_view built_in_quotas();
std::string_view built_in_published();

}  // namespace lockstep::plan
