#include "lockstep/terminal/terminal.h"
#include "lockstep/base/number.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace lockstep::terminal {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The locale by POSIX's order of precedence, read without setlocale: a library does not change it.
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    std::string lower(value);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

size_t width_of(int file_descriptor, bool is_tty) {
  constexpr size_t kLeast = 20, kMost = 1000;
  const size_t columns = base::leading_number<size_t>(environment("COLUMNS")).value_or(0);
  if (columns > 0) return std::clamp(columns, kLeast, kMost);
  winsize size{};
  if (is_tty && ::ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return std::clamp<size_t>(size.ws_col, kLeast, kMost);
  }
  return is_tty ? 80 : 100;
}

}  // namespace

std::string Terminal::paint(std::string_view text, Colour colour) const {
  constexpr int kCodes[] = {31, 33, 32, 2, 1};
  if (!colours) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<int>(colour)], text);
}

Terminal terminal_of(int file_descriptor) {
  Terminal terminal;
  terminal.is_tty = ::isatty(file_descriptor) == 1;
  const std::string_view forced = environment("CLICOLOR_FORCE");
  terminal.colours = (terminal.is_tty || (!forced.empty() && forced != "0")) &&
                     environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  terminal.unicode = locale_is_utf8();
  terminal.width = width_of(file_descriptor, terminal.is_tty);
  return terminal;
}

}  // namespace lockstep::terminal
