// The launcher's flags for commands that train: declare them, then let launch_or_join() decide what this
// process is.
//
//     LaunchFlags flags;
//     add_launch_flags(arguments, flags);
//     if (!arguments.parse()) return 0;
//     std::unique_ptr<comm::World> world;
//     if (const auto code = launch_or_join(flags, arguments.words() with the command first, folder + "/logs",
//     world)) return *code;
//     ... train as world->rank() of world->size()
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/arguments.h"
#include "lockstep/comm/world.h"
#include "lockstep/launch/start.h"

namespace lockstep::cli {

struct LaunchFlags {
  launch::Words words;
  launch::RankWishes wishes = {};
};

// Those that make sense for our own trainer; `any_program`: all.
void add_launch_flags(Arguments& arguments, LaunchFlags& flags, bool any_program = false);

// An exit code when this process was a launcher: the run is over. Otherwise `world` is set: a default World
// when alone. `argv` is what follows the program's name ("train", "first.toml", ...): a rank is this same
// program with these words.
std::optional<int> launch_or_join(const LaunchFlags& flags, const std::vector<std::string>& argv,
                                  const std::string& log_folder, std::unique_ptr<comm::World>& world);

void say_on_console(const std::string& text);  // whole lines, on standard error

}  // namespace lockstep::cli
