#include "lockstep/cli/launch/launch_flags.h"

#include <unistd.h>

#include <cstdio>

#include "lockstep/base/text.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

void add_launch_flags(Arguments& arguments, launch::Words& words, FlagsFor whom) {
  for (const launch::Flag& flag : launch::flags()) {
    if (flag.any_program_only && whom != FlagsFor::any_program) continue;
    const std::string names = base::join(launch::spellings(flag), ",");
    if (flag.text) arguments.option(names, words.*flag.text, flag.help);
    if (flag.on) arguments.flag(names, words.*flag.on, flag.help);
  }
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
