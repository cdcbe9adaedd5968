// Output of the commands. Unlike fmt::print these never throw: a reader that goes away must not end a
// training run. main.cc reports at the end what could not be written.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace lockstep::cli {

// The report, on standard output.
template <class... T>
void print(fmt::format_string<T...> format, T&&... values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

// Remarks and progress, on standard error.
template <class... T>
void remark(fmt::format_string<T...> format, T&&... values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

inline void remark_line(const std::string& line) { remark("{}\n", line); }

}  // namespace lockstep::cli
