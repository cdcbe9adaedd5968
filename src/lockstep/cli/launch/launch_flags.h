// The launcher's flags, for commands that start ranks, and its lines on the console.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/cli/arguments.h"
#include "lockstep/launch/options.h"

namespace lockstep::cli {

// Whose ranks: some flags make sense for foreign programs alone.
enum class FlagsFor : uint8_t { training, any_program };
void add_launch_flags(Arguments& arguments, launch::Words& words, FlagsFor whom);

void say_on_console(const std::string& text);  // whole lines, on standard error

}  // namespace lockstep::cli
