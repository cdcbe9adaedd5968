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

size_t height_of(int file_descriptor, bool is_tty) {
  if (!is_tty) return 0;
  const size_t lines = base::leading_number<size_t>(environment("LINES")).value_or(0);
  winsize size{};
  if (lines > 0) return lines;
  return ::ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
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
  terminal.height = height_of(file_descriptor, terminal.is_tty);
  return terminal;
}

namespace {

// Bytes of the colour ("ESC [ 1 ; 31 m") that begins here; 0: none does.
size_t colour_at(std::string_view text) {
  if (!text.starts_with("\033[")) return 0;
  const size_t end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

// Of the control character that begins here; 0: none does.
size_t control_at(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const auto second = static_cast<unsigned char>(text.size() > 1 ? text[1] : '\0');
  if (first == 0xc2 && second >= 0x80 && second < 0xa0) return 2;  // U+0080 to U+009F, in UTF-8
  if (first == '\n' || first == '\t' || (first == '\r' && second == '\n')) return 0;
  return first < 0x20 || first == 0x7f ? 1 : 0;
}

}  // namespace

std::string harmless(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t colour = colour_at(text), control = colour > 0 ? 0 : control_at(text);
    const size_t bytes = colour > 0 ? colour : control > 0 ? control : 1;
    out += control > 0 ? "?" : text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace lockstep::terminal
