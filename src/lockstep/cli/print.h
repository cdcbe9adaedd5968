// Output of the commands. Unlike fmt::print these never throw: a reader that goes away must not end a
// training run. main.cc reports at the end what could not be written. In a pipe it is the text to the byte; a
// terminal gets no control characters but colours (terminal/terminal.h).
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

inline void put(std::FILE* to, const std::string& text) {
  static const bool out = ::isatty(STDOUT_FILENO) == 1, err = ::isatty(STDERR_FILENO) == 1;
  const std::string shown = (to == stdout ? out : err) ? terminal::harmless(text) : text;
  std::fwrite(shown.data(), 1, shown.size(), to);
}

// The report, on standard output.
template <class... T>
void print(fmt::format_string<T...> format, T&&... values) {
  put(stdout, fmt::format(format, std::forward<T>(values)...));
}

// Remarks and progress, on standard error.
template <class... T>
void remark(fmt::format_string<T...> format, T&&... values) {
  put(stderr, fmt::format(format, std::forward<T>(values)...));
}

inline void remark_line(const std::string& line) { remark("{}\n", line); }

}  // namespace lockstep::cli
