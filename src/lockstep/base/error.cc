#include "lockstep/base/error.h"

#include <execinfo.h>
#include <fmt/format.h>

#include <cstdlib>

namespace lockstep::base {

std::string code_name(int number) { return fmt::format("LS{:04d}", number); }

Error::Error(int number, int exit_code, const std::string& sentence)
    : std::runtime_error(fmt::format("{} [{}]", sentence, code_name(number))),
      number_(number),
      exit_code_(exit_code) {}

void throw_bug(const char* file, int line, const char* condition, const std::string& detail) {
  std::string text = fmt::format("{}:{}: assertion {} failed", file, line, condition);
  if (!detail.empty()) text += ": " + detail;
  void* frames[32];
  const int count = backtrace(frames, 32);
  if (char** names = backtrace_symbols(frames, count)) {
    for (int i = 1; i < count; ++i) text += fmt::format("\n    {}", names[i]);
    std::free(names);
  }
  throw Bug(text);
}

}  // namespace lockstep::base
