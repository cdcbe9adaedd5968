// What the other end of a stream can show: a terminal's width, colours and characters, or a plain pipe.
//
//     const Terminal terminal = terminal_of(STDERR_FILENO);
//     fputs(terminal.paint("stopped", Colour::red).c_str(), stderr);  // plain in a pipe
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::terminal {

enum class Colour { red, yellow, green, dim, bold };

struct Terminal {
  bool is_tty = false;
  bool colours = false;  // a terminal or CLICOLOR_FORCE, unless NO_COLOR is set or TERM is dumb
  bool unicode = false;  // the locale is UTF-8
  size_t width = 80;     // COLUMNS, else the terminal's, else 80 (a pipe: 100)
  size_t height = 0;     // LINES, else the terminal's; 0: a pipe, or not known

  std::string paint(std::string_view text, Colour colour) const;  // as it is without colours
};

Terminal terminal_of(int file_descriptor);

// What may be written on a terminal of a text that comes from anywhere: names of folders, lines of old logs,
// what a model says. Colours stay; any other control character, which could move the cursor, rename the
// window or worse, becomes "?".
std::string harmless(std::string_view text);

}  // namespace lockstep::terminal
