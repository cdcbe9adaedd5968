#include "lockstep/cli/launch_flags.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "lockstep/base/text.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

// "--nproc-per-node,--nproc_per_node": the spelling with underscores is torchrun's older one.
std::string spellings(const launch::Flag& flag) {
  const std::string dashes = std::string("--") + flag.name;
  std::string underscores = dashes;
  std::replace(underscores.begin() + 2, underscores.end(), '-', '_');
  std::string all = dashes;
  if (underscores != dashes) all += "," + underscores;
  if (std::string(flag.name) == "nproc-per-node") all += ",--nproc";
  if (*flag.letter) all += std::string(",") + flag.letter;
  return all;
}

}  // namespace

void add_launch_flags(Arguments& arguments, LaunchFlags& flags, bool any_program) {
  for (const launch::Flag& flag : launch::flags()) {
    if (flag.any_program_only && !any_program) continue;
    if (flag.text) arguments.option(spellings(flag), flags.words.*flag.text, flag.help);
    if (flag.on) arguments.flag(spellings(flag), flags.words.*flag.on, flag.help);
  }
}

std::optional<int> launch_or_join(const LaunchFlags& flags, const std::vector<std::string>& argv,
                                  const std::string& log_folder, std::unique_ptr<comm::World>& world) {
  launch::Start start = launch::start(flags.words, argv, log_folder, say_on_console, flags.wishes);
  if (start.exit_code) return start.exit_code;
  start.options.say = [](const std::string& text) { say_on_console("lockstep: " + text + "\n"); };
  world = start.store ? std::make_unique<comm::World>(start.options, std::move(start.store))
                      : std::make_unique<comm::World>();
  return std::nullopt;
}

void say_on_console(const std::string& text) {
  std::fflush(stdout);  // what was said before comes first
  const terminal::Terminal terminal = terminal::terminal_of(STDERR_FILENO);
  std::string shown = text;
  if (terminal.is_tty) {
    shown =
        "\r\033[K" + base::hanging(text, terminal.width - 1, 2);  // a rank's progress line may stand there
    if (text.ends_with("\n")) shown += "\n";
  }
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

}  // namespace lockstep::cli
