// Runs the built program as a person would, in a shell, and compares what it says.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

namespace lockstep::cli {

struct Outcome {
  int code = -1;       // -1: ended by a signal
  std::string output;  // standard output and error together, unless the line says otherwise
};

// Runs a shell line in `folder`, where $L is the program.
inline Outcome run_shell(const std::string& folder, const std::string& line) {
  const std::string whole = fmt::format("exec 2>&1; cd '{}' && L='{}'; {}", folder, LOCKSTEP_PROGRAM, line);
  std::FILE* pipe = ::popen(whole.c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> piece;
  while (const size_t got = std::fread(piece.data(), 1, piece.size(), pipe))
    outcome.output.append(piece.data(), got);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

struct Row {
  std::string line;
  int code;
  std::string says;
};

inline void expect_rows(const std::string& folder, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const Outcome outcome = run_shell(folder, row.line);
    EXPECT_EQ(outcome.code, row.code) << row.line << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find(row.says), std::string::npos)
        << row.line << " should say: " << row.says << "\n"
        << outcome.output;
  }
}

}  // namespace lockstep::cli
